package cli

import (
	"errors"
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// runBrokerAPIVersions is kafka-broker-api-versions.
func runBrokerAPIVersions(e *Env) int {
	return runTool(func() error { return brokerAPIVersions(e) }, func(err error) { e.Errorf("%s", err.Error()) })
}

// clientAPI is an API that Kafka's clients know.
type clientAPI struct {
	key      int16
	name     string
	min, max int16
	broker   bool // clients may ask brokers; others are among nodes
}

func knownAPIs() []clientAPI {
	var out []clientAPI
	for _, l := range strings.Split(strings.TrimSpace(clientAPIs), "\n") {
		f := strings.Split(l, "\t")
		var n [3]int16
		for i, s := range []string{f[0], f[2], f[3]} {
			v, err := strconv.ParseInt(s, 10, 16)
			if err != nil {
				panic("zz_generated_tables.go: " + l)
			}
			n[i] = int16(v)
		}
		out = append(out, clientAPI{n[0], f[1], n[1], n[2], f[4] == "broker"})
	}
	return out
}

func brokerAPIVersions(e *Env) error {
	a := newToolArgs(e)
	bootstrap := a.Value("bootstrap-server", "server(s) to use for bootstrapping", "REQUIRED: The servers to connect to.")
	config := a.Value("command-config", "command config property file", "Properties for the AdminClient.")
	if err := a.parse(); err != nil {
		return err
	}
	if err := a.helpOrVersion("This tool helps to retrieve broker version information."); err != nil {
		return err
	}
	if err := a.require(bootstrap); err != nil {
		return err
	}
	servers, err := a.text(bootstrap)
	if err != nil {
		return err
	}
	props, err := a.bootstrapProps(config, "bootstrap.servers", servers)
	if err != nil {
		return err
	}
	ad, err := newAdmin(e, props)
	if err != nil {
		return cause(err)
	}
	defer ad.Close()
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	r, err := ad.any("METADATA", meta)
	if err != nil {
		var j *JavaError
		if errors.As(err, &j) && strings.HasSuffix(j.Class, "TimeoutException") {
			var nodes []string
			for i, s := range ad.conf.list("bootstrap.servers") {
				nodes = append(nodes, fmt.Sprintf("%s (id: %d rack: null isFenced: false)", s, -1-i))
			}
			return &JavaError{Class: "java.lang.RuntimeException", Text: "Request METADATA failed on brokers [" + strings.Join(nodes, ", ") + "]"}
		}
		return err
	}
	brokers := r.(*kmsg.MetadataResponse).Brokers
	sort.Slice(brokers, func(i, j int) bool { return brokers[i].NodeID < brokers[j].NodeID })
	known := knownAPIs()
	for _, b := range brokers {
		rack := "null"
		if b.Rack != nil {
			rack = *b.Rack
		}
		node := fmt.Sprintf("%s (id: %d rack: %s isFenced: false)", net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), b.NodeID, rack)
		printNodeAPIs(e, ad, known, node, b.NodeID)
	}
	return nil
}

// printNodeAPIs asks one node for its APIs and prints them, or why it didn't tell.
func printNodeAPIs(e *Env, a *admin, known []clientAPI, node string, id int32) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "highwater", KafkaVersion
	r, err := a.broker("API_VERSIONS", id, a.timeout, req)
	if err == nil {
		err = errorOf(codeError(r.(*kmsg.ApiVersionsResponse).ErrorCode, nil))
	}
	if err != nil {
		e.Printf("%s -> ERROR: %s\n", node, javaLine(err))
		return
	}
	e.Printf("%s -> (\n\t%s\n)\n", node, strings.Join(apiLines(known, r.(*kmsg.ApiVersionsResponse)), ",\n\t"))
}

// apiLines is what a broker offers and what a client of this version can use of it, by key.
func apiLines(known []clientAPI, resp *kmsg.ApiVersionsResponse) []string {
	names := make(map[int16]clientAPI)
	for _, k := range known {
		names[k.key] = k
	}
	lines := make(map[int16]string)
	for _, k := range resp.ApiKeys {
		span := fmt.Sprint(k.MinVersion)
		if k.MaxVersion != k.MinVersion {
			span += fmt.Sprintf(" to %d", k.MaxVersion)
		}
		c, ok := names[k.ApiKey]
		switch {
		case !ok:
			lines[k.ApiKey] = fmt.Sprintf("UNKNOWN(%d): %s", k.ApiKey, span)
		case k.MaxVersion < c.min:
			lines[k.ApiKey] = fmt.Sprintf("%s(%d): %s [unusable: node too old]", c.name, k.ApiKey, span)
		case k.MinVersion > c.max:
			lines[k.ApiKey] = fmt.Sprintf("%s(%d): %s [unusable: node too new]", c.name, k.ApiKey, span)
		default:
			lines[k.ApiKey] = fmt.Sprintf("%s(%d): %s [usable: %d]", c.name, k.ApiKey, span, min(k.MaxVersion, c.max))
		}
	}
	for _, k := range known {
		if _, ok := lines[k.key]; !ok && k.broker {
			lines[k.key] = fmt.Sprintf("%s(%d): UNSUPPORTED", k.name, k.key)
		}
	}
	keys := make([]int, 0, len(lines))
	for k := range lines {
		keys = append(keys, int(k))
	}
	sort.Ints(keys)
	var out []string
	for _, k := range keys {
		out = append(out, lines[int16(k)])
	}
	return out
}
