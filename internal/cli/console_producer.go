package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// runConsoleProducer is kafka-console-producer.
func runConsoleProducer(e *Env) int {
	return runTool(func() error { return consoleProducer(e) }, func(err error) {
		var o *OptionError
		if errors.As(err, &o) {
			e.Errorf("%s", err.Error())
			return
		}
		printTrace(e, err)
	})
}

// lineReader makes records out of lines.
type lineReader struct {
	topic                                             string
	parseKey, parseHeaders, ignoreError               bool
	keySeparator                                      string
	headersDelimiter, headersSeparator, headersKeySep string
	nullMarker                                        string
	hasNull                                           bool
	line                                              int
}

func newLineReader(topic string, props []Property) (*lineReader, error) {
	r := &lineReader{topic: topic, keySeparator: "\t", headersDelimiter: "\t", headersSeparator: ",", headersKeySep: ":"}
	for _, p := range props {
		on := strings.EqualFold(strings.TrimSpace(p.Value), "true")
		switch p.Key {
		case "topic":
			r.topic = p.Value
		case "parse.key":
			r.parseKey = on
		case "key.separator":
			r.keySeparator = p.Value
		case "parse.headers":
			r.parseHeaders = on
		case "headers.delimiter":
			r.headersDelimiter = p.Value
		case "headers.separator":
			r.headersSeparator = p.Value
		case "headers.key.separator":
			r.headersKeySep = p.Value
		case "ignore.error":
			r.ignoreError = on
		case "null.marker":
			r.nullMarker, r.hasNull = p.Value, true
		}
	}
	clash := func(a, aName, b, bName string) error {
		if a == b {
			return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: aName + " and " + bName + " may not be equal"}
		}
		return nil
	}
	type pair struct{ a, aName, b, bName string }
	pairs := []pair{
		{r.headersDelimiter, "headers.delimiter", r.headersSeparator, "headers.separator"},
		{r.headersDelimiter, "headers.delimiter", r.headersKeySep, "headers.key.separator"},
		{r.headersSeparator, "headers.separator", r.headersKeySep, "headers.key.separator"},
	}
	if r.hasNull {
		pairs = append(pairs,
			pair{r.nullMarker, "null.marker", r.keySeparator, "key.separator"},
			pair{r.nullMarker, "null.marker", r.headersSeparator, "headers.separator"},
			pair{r.nullMarker, "null.marker", r.headersDelimiter, "headers.delimiter"},
			pair{r.nullMarker, "null.marker", r.headersKeySep, "headers.key.separator"})
	}
	for _, p := range pairs {
		if err := clash(p.a, p.aName, p.b, p.bName); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// record reads one line.
func (r *lineReader) record(line string) (*kgo.Record, error) {
	r.line++
	rest := line
	cut := func(on bool, sep, name string) (string, bool, error) {
		if !on {
			return "", false, nil
		}
		before, after, ok := strings.Cut(rest, sep)
		if !ok {
			if r.ignoreError {
				return "", false, nil
			}
			return "", false, &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: fmt.Sprintf("No %s found on line number %d: '%s'", name, r.line, line)}
		}
		rest = after
		return before, true, nil
	}
	headers, hasHeaders, err := cut(r.parseHeaders, r.headersDelimiter, "headers delimiter")
	if err != nil {
		return nil, err
	}
	key, hasKey, err := cut(r.parseKey, r.keySeparator, "key separator")
	if err != nil {
		return nil, err
	}
	rec := &kgo.Record{Topic: r.topic, Value: r.bytes(rest)}
	if hasKey {
		rec.Key = r.bytes(key)
	}
	if hasHeaders && !(r.hasNull && headers == r.nullMarker) {
		if rec.Headers, err = r.headers(headers); err != nil {
			return nil, err
		}
	}
	return rec, nil
}

// bytes is a value, nil for the null marker.
func (r *lineReader) bytes(s string) []byte {
	if r.hasNull && s == r.nullMarker {
		return nil
	}
	return []byte(s)
}

func (r *lineReader) headers(s string) ([]kgo.RecordHeader, error) {
	list := strings.Split(s, r.headersSeparator)
	for len(list) > 1 && list[len(list)-1] == "" { // Java's split drops empty ends
		list = list[:len(list)-1]
	}
	var out []kgo.RecordHeader
	for _, pair := range list {
		k, v, ok := strings.Cut(pair, r.headersKeySep)
		if !ok {
			if !r.ignoreError {
				return nil, &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: fmt.Sprintf("No header key separator found in pair '%s' on line number %d", pair, r.line)}
			}
			out = append(out, kgo.RecordHeader{Key: pair})
			continue
		}
		if r.hasNull && k == r.nullMarker {
			return nil, &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: fmt.Sprintf("Header keys should not be equal to the null marker '%s' as they can't be null", r.nullMarker)}
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: r.bytes(v)})
	}
	return out, nil
}

// lines splits a stream as Java's BufferedReader does, at \n, \r or both, and calls each with every line until it is told to
// stop or the input ends.
func lines(in io.Reader, each func(string) bool) error {
	r := bufio.NewReaderSize(in, 1<<16)
	for {
		s, err := r.ReadString('\n')
		if s != "" {
			s = strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
			for _, l := range strings.Split(s, "\r") {
				if !each(l) {
					return nil
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func consoleProducer(e *Env) error {
	a := newToolArgs(e)
	topic := a.Value("topic", "topic", "REQUIRED: The topic to produce to.")
	bootstrap := a.Value("bootstrap-server", "server to connect to", "REQUIRED: The servers to connect to, HOST1:PORT1,HOST2:PORT2.")
	sync := a.Flag("sync", "Send one record at a time and wait for each.")
	codec := a.Optional("compression-codec", "compression-codec", "none, gzip, snappy, lz4 or zstd; without a value gzip.")
	batchSize := a.Value("batch-size", "size", "Bytes of a batch of one partition.").Default("16384")
	retries := a.Value("message-send-max-retries", "Integer", "How often to try again where the broker can't take a record for now.").Default("3")
	backoff := a.Value("retry-backoff-ms", "Long", "Time between tries in milliseconds.").Default("100")
	linger := a.Value("timeout", "timeout_ms", "How long a record waits for others to fill a batch, in milliseconds.").Default("1000")
	acks := a.Value("request-required-acks", "request required acks", "Acknowledgements that a record needs: 0, 1, all or -1.").Default("-1")
	requestTimeout := a.Value("request-timeout-ms", "request timeout ms", "How long to wait for an acknowledgement.").Default("1500")
	metadataExpiry := a.Value("metadata-expiry-ms", "metadata expiration interval", "How long metadata is good for.").Default("300000")
	maxBlock := a.Value("max-block-ms", "max block on send", "How long a send may block.").Default("60000")
	memory := a.Value("max-memory-bytes", "total memory in bytes", "Memory for records that wait (buffer.memory).").Default("33554432")
	partitionMemory := a.Value("max-partition-memory-bytes", "memory in bytes per partition", "(Deprecated) use --batch-size.").Default("16384")
	reader := a.Value("line-reader", "reader_class", "The class that makes records out of standard input: this tool has Kafka's own only.").Default("org.apache.kafka.tools.LineMessageReader")
	socket := a.Value("socket-buffer-size", "size", "TCP send buffer (send.buffer.bytes).").Default("102400")
	property := a.Value("property", "prop", "(DEPRECATED) use --reader-property.")
	readerProperty := a.Value("reader-property", "prop", "How lines are read, key=value: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, headers.key.separator, ignore.error, null.marker.")
	readerConfig := a.Value("reader-config", "config file", "A file with such properties; --reader-property wins.")
	producerProperty := a.Value("producer-property", "producer_prop", "(DEPRECATED) use --command-property.")
	commandProperty := a.Value("command-property", "producer_prop", "A property of the producer, key=value.")
	producerConfig := a.Value("producer.config", "config file", "(DEPRECATED) use --command-config.")
	commandConfig := a.Value("command-config", "config file", "A file with properties of the producer.")
	if err := a.parse(); err != nil {
		return a.usage(err.Error())
	}
	if err := a.helpOrVersion("This tool helps to read data from standard input and publish it to Kafka."); err != nil {
		return err
	}
	if err := a.require(topic); err != nil {
		return err
	}
	for _, c := range [][2]*Option{{commandConfig, producerConfig}, {commandProperty, producerProperty}, {readerProperty, property}} {
		if a.p.Has(c[0]) && a.p.Has(c[1]) {
			return a.usage(fmt.Sprintf("Options --%s and --%s cannot be specified together.", c[0].Names[0], c[1].Names[0]))
		}
	}
	for _, c := range [][2]*Option{{producerProperty, commandProperty}, {producerConfig, commandConfig}, {property, readerProperty}} {
		if a.p.Has(c[0]) {
			e.Printf("Warning: --%s is deprecated and will be removed in a future version. Use --%s instead.\n", c[0].Names[0], c[1].Names[0])
		}
	}
	if a.p.Has(partitionMemory) {
		e.Println("Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache Kafka 5.0. Use --batch-size instead.")
	}
	if !a.p.Has(bootstrap) {
		return a.usage("Error while validating the bootstrap address\n")
	}
	servers, err := a.text(bootstrap)
	if err != nil {
		return err
	}
	if !validHostPorts(servers) {
		return a.usage("Please provide valid host:port like host1:9091,host2:9092\n")
	}
	name, err := a.text(topic)
	if err != nil {
		return err
	}

	// the reader
	class, err := a.text(reader)
	if err != nil {
		return err
	}
	if class != "org.apache.kafka.tools.LineMessageReader" && class != "kafka.tools.ConsoleProducer$LineMessageReader" {
		return &JavaError{Class: "java.lang.ClassNotFoundException", Text: class}
	}
	var readerProps []Property
	if a.p.Has(readerConfig) {
		path, err := a.text(readerConfig)
		if err != nil {
			return err
		}
		if readerProps, err = ReadProperties(path); err != nil {
			return err
		}
	}
	readerProps = setProperty(readerProps, "topic", name)
	for _, p := range parseKeyValueArgs(append(a.p.All(property), a.p.All(readerProperty)...)) {
		readerProps = setProperty(readerProps, p.Key, p.Value)
	}
	lr, err := newLineReader(name, readerProps)
	if err != nil {
		return err
	}

	// the producer
	var props []Property
	for _, o := range []*Option{producerConfig, commandConfig} {
		if a.p.Has(o) {
			path, err := a.text(o)
			if err != nil {
				return err
			}
			if props, err = ReadProperties(path); err != nil {
				return err
			}
		}
	}
	for _, p := range parseKeyValueArgs(append(a.p.All(producerProperty), a.p.All(commandProperty)...)) {
		props = setProperty(props, p.Key, p.Value)
	}
	props = setProperty(props, "bootstrap.servers", servers)
	compression := "none"
	if a.p.Has(codec) {
		if compression, err = a.text(codec); err != nil {
			return err
		}
		if compression == "" {
			compression = "gzip"
		}
	}
	props = setProperty(props, "compression.type", compression)
	if !hasProperty(props, "client.id") {
		props = append(props, Property{"client.id", "console-producer"})
	}
	for _, m := range []struct {
		key    string
		option *Option
		number bool
	}{
		{"linger.ms", linger, true}, {"acks", acks, false}, {"request.timeout.ms", requestTimeout, true}, {"retries", retries, true},
		{"retry.backoff.ms", backoff, true}, {"send.buffer.bytes", socket, true}, {"buffer.memory", memory, true},
		{"batch.size", batchSize, true}, {"batch.size", partitionMemory, true}, {"metadata.max.age.ms", metadataExpiry, true}, {"max.block.ms", maxBlock, true},
	} {
		if m.number {
			if _, _, err := a.p.Long(m.option); err != nil {
				return err
			}
		}
		if a.p.Has(m.option) || !hasProperty(props, m.key) {
			v, err := a.text(m.option)
			if err != nil {
				return err
			}
			props = setProperty(props, m.key, v)
		}
	}
	p, err := newProducer(e, props, 0)
	if err != nil {
		return err
	}
	return produceLines(e, p, lr, a.p.Has(sync))
}

// produceLines sends standard input until it ends or the process is told to stop; what was read is sent either way.
func produceLines(e *Env, p *producer, lr *lineReader, sync bool) error {
	e.Stoppable()
	// The producer must outlive the signal: it still has to send what was read.
	ctx := context.WithoutCancel(e.Context)
	p.ctx = ctx
	log := &toolLog{w: e.Stderr}
	prompt := func() {}
	if f, ok := e.Stdin.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			prompt = func() { e.Printf(">"); e.Flush() }
		}
	}
	input := make(chan string, 256)
	readErr := make(chan error, 1)
	quit := make(chan struct{})
	go func() { // ends with the input, or with the process: a read of standard input can't be called off
		defer close(input)
		prompt()
		readErr <- lines(e.Stdin, func(l string) bool {
			select {
			case input <- l:
				prompt()
				return true
			case <-quit:
				return false
			}
		})
	}()
	defer p.close(ctx)
	defer close(quit)
	for {
		select {
		case <-e.Context.Done():
			p.close(ctx)
			return stop{130}
		case l, ok := <-input:
			if !ok {
				return <-readErr
			}
			r, err := lr.record(l)
			if err != nil {
				return err
			}
			r.Timestamp = time.Now()
			if sync {
				done := make(chan error, 1)
				p.send(r, func(_ *kgo.Record, err error) { done <- err })
				if err := <-done; err != nil {
					return executionError(err)
				}
				continue
			}
			p.send(r, func(r *kgo.Record, err error) {
				if err != nil {
					log.Line("ERROR", "org.apache.kafka.clients.producer.internals.ErrorLoggingCallback",
						fmt.Sprintf("Error when sending message to topic %s with key: %s, value: %s with error:", r.Topic, byteCount(r.Key), byteCount(r.Value)), javaLine(err))
				}
			})
		}
	}
}

func byteCount(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%d bytes", len(b))
}
