package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	hostPort  = regexp.MustCompile(`^(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)$`)
	jaasEntry = regexp.MustCompile(`([A-Za-z0-9_.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)
)

// seeds checks a list of host:port as Kafka's clients do.
func seeds(key string, list []string) ([]string, error) {
	var out []string
	for _, s := range list {
		m := hostPort.FindStringSubmatch(s)
		if m == nil || m[1] == "" {
			return nil, configError("Invalid url in %s: %s", key, s)
		}
		port, err := strconv.Atoi(m[2])
		if err != nil || port > 65535 {
			return nil, configError("Invalid port in %s: %s", key, s)
		}
		out = append(out, net.JoinHostPort(m[1], m[2]))
	}
	if len(out) == 0 {
		return nil, configError("No resolvable bootstrap urls given in %s", key)
	}
	return out, nil
}

// validHostPorts is the check that some tools make of --bootstrap-server before anything else.
func validHostPorts(s string) bool {
	for _, p := range strings.Split(s, ",") {
		if m := hostPort.FindStringSubmatch(strings.TrimSpace(p)); m == nil {
			return false
		}
	}
	return true
}

// clientOpts are the franz-go options that all kinds of clients share. addrs replaces the bootstrap servers where not nil.
func (c *clientConfig) clientOpts(hook *connectionHook, addrs []string) ([]kgo.Opt, error) {
	if addrs == nil {
		var err error
		if addrs, err = seeds("bootstrap.servers", c.list("bootstrap.servers")); err != nil {
			return nil, err
		}
	}
	id := c.clientID()
	opts := []kgo.Opt{
		kgo.SeedBrokers(addrs...),
		kgo.ClientID(id),
		kgo.SoftwareNameAndVersion("highwater", KafkaVersion),
		kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.WithHooks(hook),
	}
	if d := c.ms("socket.connection.setup.timeout.ms"); d > 0 {
		opts = append(opts, kgo.DialTimeout(d))
	}
	if d := c.ms("metadata.max.age.ms"); d > time.Second {
		opts = append(opts, kgo.MetadataMaxAge(min(d, time.Hour)))
	}
	if d := c.ms("connections.max.idle.ms"); d > time.Second {
		opts = append(opts, kgo.ConnIdleTimeout(min(d, 15*time.Minute)))
	}
	if d := c.ms("request.timeout.ms"); d > 0 {
		opts = append(opts, kgo.RequestTimeoutOverhead(min(max(d, 100*time.Millisecond), 15*time.Minute)))
	}
	if lo, hi := c.ms("retry.backoff.ms"), c.ms("retry.backoff.max.ms"); lo > 0 {
		opts = append(opts, kgo.RetryBackoffFn(func(n int) time.Duration {
			d := lo
			for ; n > 1 && d < hi; n-- {
				d *= 2
			}
			return max(min(d, hi), lo)
		}))
	}
	protocol := strings.ToUpper(c.str("security.protocol"))
	if protocol == "SSL" || protocol == "SASL_SSL" {
		conf, err := c.tls()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	if strings.HasPrefix(protocol, "SASL_") {
		m, err := c.sasl()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	return opts, nil
}

func (c *clientConfig) newHook(log *toolLog) *connectionHook {
	kind := map[clientKind]string{producerClient: "Producer", consumerClient: "Consumer", adminClient: "AdminClient"}[c.kind]
	return &connectionHook{log: log, client: kind + " clientId=" + c.clientID()}
}

// clientID is client.id, or what Kafka's clients call themselves without one.
func (c *clientConfig) clientID() string {
	if id := c.str("client.id"); id != "" {
		return id
	}
	return map[clientKind]string{producerClient: "producer-1", consumerClient: "consumer-1", adminClient: "adminclient-1"}[c.kind]
}

// sasl reads sasl.mechanism and sasl.jaas.config.
func (c *clientConfig) sasl() (sasl.Mechanism, error) {
	mechanism := c.str("sasl.mechanism")
	jaas := c.str("sasl.jaas.config")
	if jaas == "" {
		return nil, illegalArgument("Could not find a 'KafkaClient' entry in the JAAS configuration. System property 'java.security.auth.login.config' is not set")
	}
	options := make(map[string]string)
	for _, m := range jaasEntry.FindAllStringSubmatch(jaas, -1) {
		v := m[2] + m[3] + m[4]
		options[m[1]] = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`).Replace(v)
	}
	user, password := options["username"], options["password"]
	switch mechanism {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password, IsToken: options["tokenauth"] == "true"}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password, IsToken: options["tokenauth"] == "true"}.AsSha512Mechanism(), nil
	}
	return nil, configError("sasl.mechanism %s is not supported by this tool: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 are", mechanism)
}

// tls reads the ssl.* properties. Stores must be PEM: as Kafka's clients take them with ssl.*.type=PEM.
func (c *clientConfig) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.str("ssl.endpoint.identification.algorithm") == "" {
		// Kafka's way to say: check the chain, not the name.
		conf.InsecureSkipVerify = true
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: conf.RootCAs, Intermediates: x509.NewCertPool()}
			for _, p := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(p)
			}
			_, err := s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	trust, err := c.pem("ssl.truststore", "ssl.truststore.certificates")
	if err != nil {
		return nil, err
	}
	if trust != nil {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(trust) {
			return nil, configError("Invalid PEM truststore configs: no certificate found")
		}
	}
	chain, err := c.pem("ssl.keystore", "ssl.keystore.certificate.chain")
	if err != nil {
		return nil, err
	}
	if chain != nil {
		key := chain
		if k := c.str("ssl.keystore.key"); k != "" {
			key = []byte(k)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return nil, configError("Invalid PEM keystore configs: %v", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// pem is a store's text: given inline or in a file.
func (c *clientConfig) pem(store, inline string) ([]byte, error) {
	if v := c.str(inline); v != "" && c.has(inline) {
		return []byte(v), nil
	}
	path := c.str(store + ".location")
	if path == "" || !c.has(store+".location") {
		return nil, nil
	}
	if t := strings.ToUpper(c.str(store + ".type")); t != "PEM" {
		return nil, configError("%s.type %s is not supported by this tool: convert the store to PEM and set %s.type=PEM", store, t, store)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, configError("read %s.location: %v", store, err)
	}
	return b, nil
}

// connectionHook warns about brokers that can't be reached, and remembers whether one ever was.
type connectionHook struct {
	log    *toolLog
	client string

	mu        sync.Mutex
	connected bool                 // guarded by mu
	refused   error                // guarded by mu; the broker doesn't let this client in
	warned    map[string]time.Time // guarded by mu; by address, once a second
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h *connectionHook) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.connected = true
		return
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	if final := finalError(err); final != nil {
		h.refused = final
		return
	}
	addr := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	if h.warned == nil {
		h.warned = make(map[string]time.Time)
	}
	if now := time.Now(); now.Sub(h.warned[addr]) > time.Second {
		h.warned[addr] = now
		id := int64(meta.NodeID)
		if id < 0 {
			id = -1
		}
		h.log.Line("WARN", "org.apache.kafka.clients.NetworkClient", fmt.Sprintf("[%s] Connection to node %d (/%s) could not be established. Node may not be available.", h.client, id, addr))
	}
}

func (h *connectionHook) refusal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

func (h *connectionHook) everConnected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connected
}
