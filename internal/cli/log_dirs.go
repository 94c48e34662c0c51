package cli

import (
	"encoding/json"
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// runLogDirs is kafka-log-dirs.
func runLogDirs(e *Env) int {
	return runTool(func() error { return logDirs(e) }, func(err error) {
		e.Errorf("%s", err.Error())
		var t terseError
		if !errors.As(err, &t) {
			printTrace(e, err)
		}
	})
}

const aboutLogDirs = "This tool helps to query log directory usage on the specified brokers."

func logDirs(e *Env) error {
	a := newToolArgs(e)
	bootstrap := a.Value("bootstrap-server", "The server(s) to use for bootstrapping", "REQUIRED: the servers to connect to.")
	config := a.Value("command-config", "Admin client property file", "Properties for the AdminClient.")
	describe := a.Flag("describe", "Describe the log directories of brokers.")
	topicList := a.Value("topic-list", "Topic list", "The topics to tell of, with commas. Without it: all.").Default("")
	brokerList := a.Value("broker-list", "Broker list", "The brokers to ask, with commas. Without it: all.").Default("")
	if err := a.parse(); err != nil {
		return err
	}
	if err := a.helpOrVersion(aboutLogDirs); err != nil {
		return err
	}
	if err := a.require(bootstrap, describe); err != nil {
		return err
	}
	var given [3]string
	for i, o := range []*Option{bootstrap, topicList, brokerList} {
		var err error
		if given[i], err = a.text(o); err != nil {
			return err
		}
	}
	props, err := a.bootstrapProps(config, "bootstrap.servers", given[0])
	if err != nil {
		return err
	}
	if !hasProperty(props, "client.id") {
		props = setProperty(props, "client.id", "log-dirs-tool")
	}
	ad, err := newAdmin(e, props)
	if err != nil {
		return err
	}
	defer ad.Close()
	r, err := ad.any("listNodes", kmsg.NewPtrDescribeClusterRequest())
	if err != nil {
		return executionError(err)
	}
	var cluster []int32
	for _, b := range r.(*kmsg.DescribeClusterResponse).Brokers {
		cluster = append(cluster, b.NodeID)
	}
	cluster = javaInts(cluster)
	var asked, missing []int32
	for _, s := range splitList(given[2]) {
		id, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return &JavaError{Class: "java.lang.NumberFormatException", Text: "For input string: \"" + s + "\""}
		}
		if slices.Contains(cluster, int32(id)) {
			asked = append(asked, int32(id))
		} else {
			missing = append(missing, int32(id))
		}
	}
	if len(missing) > 0 {
		return terseError{"ERROR: The given brokers do not exist from --broker-list: " + joinInts(javaInts(missing), ",") +
			". Current existent brokers: " + joinInts(cluster, ",")}
	}
	if len(asked) == 0 {
		asked = cluster
	}
	asked = javaInts(asked)
	e.Println("Querying brokers for log directories information")
	all := logDirsJSON{Brokers: []brokerDirsJSON{}, Version: 1}
	for _, id := range asked {
		b, err := describeLogDirs(ad, id, splitList(given[1]))
		if err != nil {
			return executionError(err)
		}
		all.Brokers = append(all.Brokers, b)
	}
	e.Println("Received log directory information from brokers " + joinInts(asked, ","))
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	e.Println(string(text))
	return nil
}

// The fields stand in the order in which Java's hash maps give them.
type logDirsJSON struct {
	Brokers []brokerDirsJSON `json:"brokers"`
	Version int              `json:"version"`
}

type brokerDirsJSON struct {
	Broker  int32        `json:"broker"`
	LogDirs []logDirJSON `json:"logDirs"`
}

type logDirJSON struct {
	Partitions []logJSON `json:"partitions"`
	Error      *string   `json:"error"`
	LogDir     string    `json:"logDir"`
}

type logJSON struct {
	Partition string `json:"partition"`
	Size      int64  `json:"size"`
	OffsetLag int64  `json:"offsetLag"`
	IsFuture  bool   `json:"isFuture"`
}

// describeLogDirs asks one broker; without topics everything is told.
func describeLogDirs(ad *admin, id int32, topics []string) (brokerDirsJSON, error) {
	out := brokerDirsJSON{Broker: id, LogDirs: []logDirJSON{}}
	r, err := ad.broker("describeLogDirs", id, ad.timeout, kmsg.NewPtrDescribeLogDirsRequest())
	if err != nil {
		return out, err
	}
	resp := r.(*kmsg.DescribeLogDirsResponse)
	if len(resp.Dirs) == 0 && resp.ErrorCode != 0 {
		return out, codeError(resp.ErrorCode, nil)
	}
	byName := make(map[string]*kmsg.DescribeLogDirsResponseDir)
	var names []string
	for i := range resp.Dirs {
		names = append(names, resp.Dirs[i].Dir)
		byName[resp.Dirs[i].Dir] = &resp.Dirs[i]
	}
	for _, name := range javaOrder(names, len(names)) {
		d := byName[name]
		rd := logDirJSON{Partitions: []logJSON{}, LogDir: name}
		if err := codeError(d.ErrorCode, nil); err != nil {
			rd.Error = &err.Class
		}
		var keys []partitionKey
		logs := make(map[partitionKey]logJSON)
		for _, t := range d.Topics {
			if len(topics) > 0 && !slices.Contains(topics, t.Topic) {
				continue
			}
			for _, p := range t.Partitions {
				k := partitionKey{t.Topic, p.Partition}
				keys = append(keys, k)
				logs[k] = logJSON{k.String(), p.Size, p.OffsetLag, p.IsFuture}
			}
		}
		for _, k := range javaPartitions(keys) {
			rd.Partitions = append(rd.Partitions, logs[k])
		}
		out.LogDirs = append(out.LogDirs, rd)
	}
	return out, nil
}

// splitList splits at commas and leaves out what is empty.
func splitList(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(x string) bool { return x == "" })
}

// javaHashed sorts keys, all different and in the order in which they were put, as a java.util.HashMap that grew walks over them.
func javaHashed[T any](keys []T, hash func(T) uint32) []T {
	n := 16
	if len(keys) > 12 {
		n = 1 << bits.Len(uint(len(keys)*4/3))
	}
	bucket := func(k T) int {
		h := hash(k)
		return int((h ^ h>>16) & uint32(n-1))
	}
	out := slices.Clone(keys)
	slices.SortStableFunc(out, func(a, b T) int { return bucket(a) - bucket(b) })
	return out
}

// javaInts is javaHashed of Integers; each stays once.
func javaInts(ids []int32) []int32 {
	var once []int32
	for _, id := range ids {
		if !slices.Contains(once, id) {
			once = append(once, id)
		}
	}
	return javaHashed(once, func(id int32) uint32 { return uint32(id) })
}

// javaPartitions is javaHashed of TopicPartitions.
func javaPartitions(keys []partitionKey) []partitionKey {
	return javaHashed(keys, func(k partitionKey) uint32 { return 31*(31+uint32(k.partition)) + javaHash(k.topic) })
}
