package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// runVerifiableProducer is kafka-verifiable-producer, which system tests drive: it sends increasing numbers and prints a line
// of JSON for each that was acknowledged or failed.
func runVerifiableProducer(e *Env) int {
	p := verifiableProducerArgs()
	if len(e.Args) == 0 {
		p.PrintHelp(e.Stdout)
		return 0
	}
	n, err := p.Parse(e.Args, e.Stdout)
	if err == nil {
		err = verifiableProduce(e, p, n)
	}
	var a *ArgError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrHelp):
		return 1 // as Kafka's tool
	case errors.As(err, &a):
		return HandleError(e.Stderr, err)
	}
	e.Errorf("Exception in thread \"main\" %s", javaLine(err))
	printCauses(e, err)
	return 1
}

func verifiableProducerArgs() *ArgParser {
	p := &ArgParser{Prog: "verifiable-producer", Description: "Sends increasing numbers to a topic and prints what became of each as JSON."}
	p.Add(Arg{Names: []string{"--topic"}, Meta: "TOPIC", Required: true, Help: "The topic to produce to."})
	p.Group(true, Arg{Names: []string{"--bootstrap-server"}, Meta: "HOST1:PORT1[,HOST2:PORT2[...]]", Help: "The servers to connect to."})
	p.Add(Arg{Names: []string{"--max-messages"}, Meta: "MAX-MESSAGES", Type: "Integer", Default: "-1", Help: "So many records; -1: until the process is stopped."})
	p.Add(Arg{Names: []string{"--throughput"}, Meta: "THROUGHPUT", Type: "Integer", Default: "-1", Help: "At most about so many records a second; -1: no limit."})
	p.Add(Arg{Names: []string{"--acks"}, Meta: "ACKS", Type: "Integer", Choices: []string{"0", "1", "-1"}, Default: "-1", Help: "The acknowledgements that each record needs."})
	p.Add(Arg{Names: []string{"--producer.config"}, Meta: "CONFIG-FILE", Help: "(DEPRECATED) use --command-config."})
	p.Add(Arg{Names: []string{"--message-create-time"}, Meta: "CREATE-TIME", Type: "Long", Default: "-1", Help: "The records' times begin here, in milliseconds since 1970; -1: now."})
	p.Add(Arg{Names: []string{"--value-prefix"}, Meta: "VALUE-PREFIX", Type: "Integer", Help: "Each value begins with this number and a dot."})
	p.Add(Arg{Names: []string{"--repeating-keys"}, Meta: "REPEATING-KEYS", Type: "Integer", Help: "Keys are 0 to below this number, again and again."})
	p.Add(Arg{Names: []string{"--command-config"}, Meta: "CONFIG-FILE", Help: "A file with properties of the producer; they win over the options."})
	return p
}

// Events, in the order of the fields in which Kafka's tool prints them.
type (
	eventHead struct {
		Timestamp int64  `json:"timestamp"`
		Name      string `json:"name"`
	}
	sendSuccess struct {
		eventHead
		Key       *string `json:"key"`
		Value     string  `json:"value"`
		Offset    int64   `json:"offset"`
		Topic     string  `json:"topic"`
		Partition int32   `json:"partition"`
	}
	sendError struct {
		eventHead
		Topic     string  `json:"topic"`
		Key       *string `json:"key"`
		Value     string  `json:"value"`
		Exception string  `json:"exception"`
		Message   string  `json:"message"`
	}
	toolData struct {
		eventHead
		Sent             int64           `json:"sent"`
		Acked            int64           `json:"acked"`
		TargetThroughput int64           `json:"target_throughput"`
		AvgThroughput    json.RawMessage `json:"avg_throughput"`
	}
)

func event(name string) eventHead { return eventHead{time.Now().UnixMilli(), name} }

// printEvent prints one line, at once: who drives the tool waits for it.
func printEvent(e *Env, v any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // of strings and numbers there is none
		e.Printf("Bad data can't be written as json: %v\n", err)
	} else {
		e.Printf("%s", b.String())
	}
	e.Flush()
}

func verifiableProduce(e *Env, p *ArgParser, n *Namespace) error {
	if n.Has("producer.config") && n.Has("command-config") {
		return &ArgError{p, "Options --producer.config and --command-config are mutually exclusive."}
	}
	props := []Property{{"bootstrap.servers", n.Get("bootstrap-server")}, {"acks", n.Get("acks")}, {"retries", "0"}}
	path := n.Get("command-config")
	if n.Has("producer.config") {
		e.Println("Option --producer.config has been deprecated and will be removed in a future version. Use --command-config instead.")
		path = n.Get("producer.config")
	}
	if path != "" {
		more, err := ReadProperties(path)
		if err != nil {
			return &ArgError{p, err.Error()}
		}
		for _, kv := range more {
			props = setProperty(props, kv.Key, kv.Value)
		}
	}
	var more []kgo.Opt
	if n.Int64("message-create-time") != -1 {
		more = append(more, kgo.RecordDeliveryTimeout(0)) // franz-go would reckon it from the records' own times
	}
	pr, err := newProducer(e, props, 0, more...)
	if err != nil {
		return err
	}
	e.Stoppable()
	v := &verifiableProducer{e: e, topic: n.Get("topic"), throughput: n.Int64("throughput"), began: time.Now()}
	v.run(pr, n)
	// What was sent is waited for even if the tool was told to stop: the counts must be true.
	pr.close(context.WithoutCancel(e.Context))
	printEvent(e, event("shutdown_complete"))
	v.mu.Lock()
	defer v.mu.Unlock()
	rate := 0.0
	if ms := time.Since(v.began).Milliseconds(); ms > 0 {
		rate = 1000 * float64(v.acked) / float64(ms)
	}
	printEvent(e, toolData{event("tool_data"), v.sent, v.acked, v.throughput, json.RawMessage(javaDouble(rate))})
	return nil
}

type verifiableProducer struct {
	e          *Env
	topic      string
	throughput int64 // records a second, below 0 without limit
	began      time.Time
	sent       int64

	mu    sync.Mutex
	acked int64 // guarded by mu
}

func (v *verifiableProducer) run(pr *producer, n *Namespace) {
	printEvent(v.e, event("startup_complete"))
	most := n.Int64("max-messages")
	created := n.Int64("message-create-time")
	keys, key := n.Int64("repeating-keys"), int64(0)
	for i := int64(0); (most < 0 || i < most) && v.e.Context.Err() == nil; i++ {
		value := strconv.FormatInt(i, 10)
		if n.Has("value-prefix") {
			value = n.Get("value-prefix") + "." + value
		}
		r := &kgo.Record{Topic: v.topic, Value: []byte(value)}
		var shown *string
		if n.Has("repeating-keys") {
			k := strconv.FormatInt(key, 10)
			shown, r.Key = &k, []byte(k)
			if key++; key == keys {
				key = 0
			}
		}
		if created != -1 {
			r.Timestamp = time.UnixMilli(created)
			created += time.Since(v.began).Milliseconds()
		}
		v.sent++
		pr.send(r, func(r *kgo.Record, err error) { v.done(r, shown, value, err) })
		v.throttle(i)
	}
}

func (v *verifiableProducer) done(r *kgo.Record, key *string, value string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		class := "org.apache.kafka.common.KafkaException"
		text := err.Error()
		var j *JavaError
		if errors.As(err, &j) {
			class = j.Class
		}
		printEvent(v.e, sendError{event("producer_send_error"), v.topic, key, value, "class " + class, text})
		return
	}
	v.acked++
	printEvent(v.e, sendSuccess{event("producer_send_success"), key, value, r.Offset, r.Topic, r.Partition})
}

// throttle waits so long that no more than throughput records a second were sent, record i the last of them.
func (v *verifiableProducer) throttle(i int64) {
	if v.throughput < 0 {
		return
	}
	if v.throughput == 0 { // nothing more until the tool is stopped
		<-v.e.Context.Done()
		return
	}
	wait := time.Until(v.began.Add(time.Duration(float64(i+1) / float64(v.throughput) * float64(time.Second))))
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-v.e.Context.Done():
	}
}
