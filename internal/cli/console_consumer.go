package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const rebalanceHint = "The consumer rebalance protocol (KIP-848) is production-ready! Set group.protocol=consumer to try it out. See https://kafka.apache.org/documentation/#consumer_rebalance_protocol"

// consoleConsumer is kafka-console-consumer.
type consoleConsumer struct {
	*toolArgs
	log *toolLog

	topic, include, partition, offset                       *Option
	consumerProperty, commandProperty                       *Option
	consumerConfig, commandConfig                           *Option
	formatter, property, formatterProperty, formatterConfig *Option
	fromBeginning, maxMessages, timeout, skip               *Option
	bootstrap, keyDeserializer, valueDeserializer           *Option
	events, isolation, group                                *Option
}

func runConsoleConsumer(e *Env) int {
	c := &consoleConsumer{toolArgs: newToolArgs(e), log: &toolLog{w: e.Stderr}}
	return runTool(c.run, func(err error) { e.Errorf("Exception in thread \"main\" %s", javaLine(err)) })
}

func (c *consoleConsumer) options() {
	c.topic = c.Value("topic", "topic", "The topic to read.")
	c.include = c.Value("include", "Java regex (String)", "A regular expression for topics to read.")
	c.partition = c.Value("partition", "partition", "The partition to read, from its end unless --offset says otherwise.")
	c.offset = c.Value("offset", "consume offset", "Where to start: an offset, earliest or latest.").Default("latest")
	c.consumerProperty = c.Value("consumer-property", "consumer_prop", "(DEPRECATED) use --command-property.")
	c.commandProperty = c.Value("command-property", "consumer_prop", "A property of the consumer, key=value.")
	c.consumerConfig = c.Value("consumer.config", "config file", "(DEPRECATED) use --command-config.")
	c.commandConfig = c.Value("command-config", "config file", "A file with properties of the consumer; --command-property wins.")
	c.formatter = c.Value("formatter", "class", "How records are shown: org.apache.kafka.tools.consumer.DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter, OffsetsMessageFormatter, GroupMetadataMessageFormatter, TransactionLogMessageFormatter or org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter.").Default("org.apache.kafka.tools.consumer.DefaultMessageFormatter")
	c.property = c.Value("property", "prop", "(DEPRECATED) use --formatter-property.")
	c.formatterProperty = c.Value("formatter-property", "prop", "A property of the formatter, key=value: print.timestamp, print.key, print.offset, print.epoch, print.partition, print.headers, print.value, key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer, headers.deserializer.")
	c.formatterConfig = c.Value("formatter-config", "config file", "A file with such properties; --formatter-property wins.")
	c.fromBeginning = c.Flag("from-beginning", "Without a committed offset start with the earliest record, not the latest.")
	c.maxMessages = c.Value("max-messages", "num_messages", "Stop after so many records.")
	c.timeout = c.Value("timeout-ms", "timeout_ms", "Stop when no record came for so long.")
	c.skip = c.Flag("skip-message-on-error", "Go on after a record that can't be shown.")
	c.bootstrap = c.Value("bootstrap-server", "server to connect to", "REQUIRED: The servers to connect to.")
	c.keyDeserializer = c.Value("key-deserializer", "deserializer for keys", "The class that reads keys.")
	c.valueDeserializer = c.Value("value-deserializer", "deserializer for values", "The class that reads values.")
	c.events = c.Flag("enable-systest-events", "Print events of the consumer's life, too (for system tests).")
	c.isolation = c.Value("isolation-level", "String", "read_committed leaves out records of open and aborted transactions, read_uncommitted shows all.").Default("read_uncommitted")
	c.group = c.Value("group", "consumer group id", "The consumer group's id.")
}

// consoleOptions is what the command line says, checked.
type consoleOptions struct {
	props   []Property
	sub     subscription
	timeout time.Duration
	format  formatter
}

func (c *consoleConsumer) check() (*consoleOptions, error) {
	c.options()
	if err := c.parse(); err != nil {
		return nil, c.usage(err.Error())
	}
	if err := c.helpOrVersion("This tool helps to read data from Kafka topics and outputs it to standard output."); err != nil {
		return nil, err
	}
	if err := c.exactlyOne(c.topic, c.include); err != nil {
		return nil, err
	}
	switch {
	case c.p.Has(c.partition) && !c.p.Has(c.topic):
		return nil, c.usage("The topic is required when partition is specified.")
	case c.p.Has(c.partition) && c.p.Has(c.fromBeginning) && c.p.Has(c.offset):
		return nil, c.usage("Options from-beginning and offset cannot be specified together.")
	case !c.p.Has(c.partition) && c.p.Has(c.offset):
		return nil, c.usage("The partition is required when offset is specified.")
	}
	if err := c.require(c.bootstrap); err != nil {
		return nil, err
	}
	for _, pair := range [][2]*Option{{c.consumerProperty, c.commandProperty}, {c.consumerConfig, c.commandConfig}} {
		old, now := pair[0], pair[1]
		if c.p.Has(old) && c.p.Has(now) {
			return nil, c.usage(fmt.Sprintf("Options --%s and --%s cannot be specified together.", old.Names[0], now.Names[0]))
		}
		if c.p.Has(old) {
			c.e.Printf("Option --%s is deprecated and will be removed in a future version. Use --%s instead.\n", old.Names[0], now.Names[0])
		}
	}
	out := &consoleOptions{}
	var file []Property
	for _, o := range []*Option{c.consumerConfig, c.commandConfig} {
		if c.p.Has(o) {
			path, err := c.text(o)
			if err != nil {
				return nil, err
			}
			if file, err = ReadProperties(path); err != nil {
				return nil, err
			}
		}
	}
	extra := parseKeyValueArgs(append(c.p.All(c.consumerProperty), c.p.All(c.commandProperty)...))
	groups, err := c.groups(file, extra)
	if err != nil {
		return nil, err
	}
	if out.props, err = c.consumerProps(file, extra, groups); err != nil {
		return nil, err
	}
	if err := c.position(&out.sub); err != nil {
		return nil, err
	}
	if n, ok, err := c.p.Long(c.timeout); err != nil {
		return nil, err
	} else if ok && n >= 0 {
		out.timeout = max(time.Duration(n)*time.Millisecond, 1)
	}
	out.format, err = c.messageFormatter()
	return out, err
}

// groups is the group ids that stand in different places: at most one.
func (c *consoleConsumer) groups(file, extra []Property) ([]string, error) {
	var ids []string
	add := func(s string) {
		for _, have := range ids {
			if have == s {
				return
			}
		}
		ids = append(ids, s)
	}
	if c.p.Has(c.group) {
		s, err := c.text(c.group)
		if err != nil {
			return nil, err
		}
		add(s)
	}
	for _, props := range [][]Property{file, extra} {
		for _, p := range props {
			if p.Key == "group.id" {
				add(p.Value)
			}
		}
	}
	if len(ids) > 1 {
		var quoted []string
		for _, s := range javaOrder(ids, 0) {
			quoted = append(quoted, "'"+s+"'")
		}
		return nil, c.usage("The group ids provided in different places (directly using '--group', via '--consumer-property', or via '--consumer.config') do not match. Detected group ids: " + strings.Join(quoted, ", "))
	}
	if len(ids) > 0 && c.p.Has(c.partition) {
		return nil, c.usage("Options group and partition cannot be specified together.")
	}
	return ids, nil
}

func (c *consoleConsumer) consumerProps(file, extra []Property, groups []string) ([]Property, error) {
	props := append([]Property(nil), file...)
	for _, p := range extra {
		props = setProperty(props, p.Key, p.Value)
	}
	reset := "latest"
	if c.p.Has(c.fromBeginning) {
		reset = "earliest"
	}
	if hasProperty(props, "auto.offset.reset") {
		for _, p := range props {
			if p.Key == "auto.offset.reset" && c.p.Has(c.fromBeginning) && p.Value != "earliest" {
				c.e.Errorf("Can't simultaneously specify --from-beginning and 'auto.offset.reset=%s', please remove one option", p.Value)
				return nil, stop{1}
			}
		}
	} else {
		props = setProperty(props, "auto.offset.reset", reset)
	}
	servers, err := c.text(c.bootstrap)
	if err != nil {
		return nil, err
	}
	props = setProperty(props, "bootstrap.servers", servers)
	if !hasProperty(props, "client.id") {
		props = append(props, Property{"client.id", "console-consumer"})
	}
	if c.p.Has(c.isolation) || !hasProperty(props, "isolation.level") {
		level, err := c.text(c.isolation)
		if err != nil {
			return nil, err
		}
		props = setProperty(props, "isolation.level", level)
	}
	if len(groups) == 0 {
		props = setProperty(props, "group.id", "console-consumer-"+strconv.Itoa(rand.IntN(100000)))
		if !hasProperty(props, "enable.auto.commit") {
			props = append(props, Property{"enable.auto.commit", "false"})
		}
		return props, nil
	}
	return setProperty(props, "group.id", groups[0]), nil
}

// position is where --partition and --offset start.
func (c *consoleConsumer) position(s *subscription) error {
	if n, ok, err := c.p.Int(c.partition); err != nil {
		return err
	} else if ok {
		s.assigned, s.partition = true, int32(n)
	}
	if c.p.Has(c.topic) {
		name, err := c.text(c.topic)
		if err != nil {
			return err
		}
		s.topics = []string{name}
	} else {
		var err error
		if s.include, err = c.text(c.include); err != nil {
			return err
		}
	}
	s.offset = -1
	if c.p.Has(c.fromBeginning) {
		s.offset = -2
	}
	if c.p.Has(c.offset) {
		text, err := c.text(c.offset)
		if err != nil {
			return err
		}
		switch strings.ToLower(text) {
		case "earliest":
			s.offset = -2
		case "latest":
			s.offset = -1
		default:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return c.usage("The provided offset value '" + text + "' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long.")
			}
			s.offset = n
		}
	}
	return nil
}

func (c *consoleConsumer) messageFormatter() (formatter, error) {
	if c.p.Has(c.property) && c.p.Has(c.formatterProperty) {
		return nil, c.usage("Options --property and --formatter-property cannot be specified together.")
	}
	class, err := c.text(c.formatter)
	if err != nil {
		return nil, err
	}
	if c.p.Has(c.property) {
		c.e.Println("Option --property is deprecated and will be removed in a future version. Use --formatter-property instead.")
	}
	var props []Property
	if c.p.Has(c.formatterConfig) {
		path, err := c.text(c.formatterConfig)
		if err != nil {
			return nil, err
		}
		if props, err = ReadProperties(path); err != nil {
			return nil, c.usage(err.Error())
		}
	}
	for _, d := range []struct {
		key string
		o   *Option
	}{{"key.deserializer", c.keyDeserializer}, {"value.deserializer", c.valueDeserializer}} {
		s, err := c.text(d.o)
		if err != nil {
			return nil, err
		}
		if s != "" {
			props = setProperty(props, d.key, s)
		}
	}
	for _, p := range parseKeyValueArgs(append(c.p.All(c.property), c.p.All(c.formatterProperty)...)) {
		props = setProperty(props, p.Key, p.Value)
	}
	f, err := newFormatter(class, props, c.log)
	if err != nil {
		return nil, c.usage(err.Error())
	}
	return f, nil
}

const consoleLogger = "org.apache.kafka.tools.consumer.ConsoleConsumer"

func (c *consoleConsumer) run() error {
	o, err := c.check()
	if err != nil {
		return err
	}
	err = c.consume(o)
	var s stop
	if err == nil || errors.As(err, &s) {
		return err
	}
	text := "Unknown error when running consumer: "
	var j *JavaError
	if errors.As(err, &j) && strings.Contains(j.Class, "Authentication") {
		text = "Authentication failed: terminating consumer process"
	}
	more := []string{javaLine(err)}
	var oe *OptionError
	if errors.As(err, &oe) {
		text, more = text+oe.Text, nil
	}
	for errors.As(err, &j) && j.Inner != nil {
		err = j.Inner
		more = append(more, "Caused by: "+javaLine(err))
	}
	c.log.Line("ERROR", consoleLogger, text, more...)
	return stop{1}
}

func (c *consoleConsumer) consume(o *consoleOptions) error {
	k, err := newConsumer(c.e, o.props, o.sub)
	if err != nil {
		return err
	}
	if !o.sub.assigned && !strings.EqualFold(k.conf.str("group.protocol"), "consumer") {
		c.e.Errorf("%s", rebalanceHint)
	}
	c.e.Stoppable()
	count := 0
	err = c.process(k, o, &count)
	c.e.Flush()
	k.close()
	c.e.Errorf("Processed a total of %d messages", count)
	if c.p.Has(c.events) {
		c.e.Println("shutdown_complete")
	}
	if err == nil && c.e.Context.Err() != nil {
		return stop{130}
	}
	return err
}

// process shows records until there are enough, none comes in time, or reading fails: only a record that can't be shown
// makes the tool fail.
func (c *consoleConsumer) process(k *consumer, o *consoleOptions, count *int) error {
	most := -1
	if n, ok, err := c.p.Int(c.maxMessages); err != nil {
		return err
	} else if ok {
		most = n
	}
	for *count < most || most == -1 {
		if len(k.ready) == 0 {
			c.e.Flush()
		}
		r, err := k.receive(c.e.Context, o.timeout)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				c.log.Line("ERROR", consoleLogger, "Error processing message, terminating consumer process: ", javaLine(err))
			}
			return nil
		}
		*count++
		if err := o.format(c.e.Stdout, r); err != nil {
			var j *JavaError
			if !errors.As(err, &j) {
				c.e.Errorf("Unable to write to standard out, closing consumer.")
				return nil
			}
			if !c.p.Has(c.skip) {
				return err
			}
			c.log.Line("ERROR", consoleLogger, "Error processing message, skipping this message: ", javaLine(err))
		}
		k.done(r)
	}
	return nil
}
