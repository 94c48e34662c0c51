package cli

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
)

// topicsTool is kafka-topics.
type topicsTool struct {
	*toolArgs
	admin *admin

	bootstrap, commandConfig                                     *Option
	list, create, delete, alter, describe                        *Option
	topic, topicID, config, deleteConfig                         *Option
	partitions, factor, assignment                               *Option
	underReplicated, unavailable, underMinISR, atMinISR          *Option
	overrides, ifExists, ifNotExists, excludeInternal, sizeLimit *Option
}

const collisionWarning = "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To avoid issues it is best to use either, but not both."

func runTopics(e *Env) int {
	t := &topicsTool{toolArgs: newToolArgs(e)}
	// Before the AdminClient is there, an error is printed with its stack trace on standard error; after that on standard output.
	return runTool(t.run, func(err error) {
		if t.admin != nil {
			e.Printf("Error while executing topic command : %s\n", cause(err).Error())
			return
		}
		e.Errorf("%s", err.Error())
		printCauses(e, err)
	})
}

func (t *topicsTool) run() error {
	t.options()
	if err := t.parse(); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	servers, err := t.text(t.bootstrap)
	if err != nil {
		return err
	}
	props, err := t.bootstrapProps(t.commandConfig, "bootstrap.servers", servers)
	if err != nil {
		return err
	}
	a, err := newAdmin(t.e, props)
	if err != nil {
		return err
	}
	t.admin = a
	defer a.Close()
	switch {
	case t.p.Has(t.create):
		return t.createTopic()
	case t.p.Has(t.alter):
		return t.alterTopic()
	case t.p.Has(t.list):
		return t.listTopics()
	case t.p.Has(t.describe):
		return t.describeTopic()
	default:
		return t.deleteTopic()
	}
}

func (t *topicsTool) options() {
	t.bootstrap = t.Value("bootstrap-server", "server to connect to", "REQUIRED: The servers to connect to, host:port with commas.")
	t.commandConfig = t.Value("command-config", "property file", "Properties for the AdminClient.")
	t.list = t.Flag("list", "List topics.")
	t.create = t.Flag("create", "Create a topic.")
	t.delete = t.Flag("delete", "Delete topics.")
	t.alter = t.Flag("alter", "Change the number of partitions and where new ones go.")
	t.describe = t.Flag("describe", "Show topics in detail.")
	t.topic = t.Value("topic", "topic", "The topic to create, alter, describe or delete. All but --create take a regular expression in double quotes, too.")
	t.topicID = t.Value("topic-id", "topic-id", "The id of the topic to describe.")
	t.config = t.Value("config", "name=value", "A configuration of the topic to create; may stand several times.")
	t.deleteConfig = t.Value("delete-config", "name", "No longer supported: kafka-configs does it.")
	t.partitions = t.Value("partitions", "# of partitions", "Number of partitions of the topic to create or alter. When altering, keys may go to other partitions than before. Default at creation: the cluster's.")
	t.factor = t.Value("replication-factor", "replication factor", "Replicas of each partition of the topic to create. Default: the cluster's.")
	t.assignment = t.Value("replica-assignment", "broker1:broker2,broker3:broker4,…", "Which brokers hold which partition: ids with colons, the first the preferred leader; partitions with commas.")
	t.underReplicated = t.Flag("under-replicated-partitions", "When describing, show only partitions with replicas that are not in sync.")
	t.unavailable = t.Flag("unavailable-partitions", "When describing, show only partitions whose leader is not available.")
	t.underMinISR = t.Flag("under-min-isr-partitions", "When describing, show only partitions with fewer replicas in sync than min.insync.replicas.")
	t.atMinISR = t.Flag("at-min-isr-partitions", "When describing, show only partitions with exactly min.insync.replicas in sync.")
	t.overrides = t.Flag("topics-with-overrides", "When describing, show only topics with configurations of their own.")
	t.ifExists = t.Flag("if-exists", "When altering, deleting or describing, do it only if the topic exists.")
	t.ifNotExists = t.Flag("if-not-exists", "When creating, do it only if the topic doesn't exist.")
	t.excludeInternal = t.Flag("exclude-internal", "When listing or describing, leave internal topics out.")
	t.sizeLimit = t.Value("partition-size-limit-per-response", "maximum number of partitions per response", "The most partitions in one answer of a broker.")
}

// check is what Kafka checks before it talks to anyone.
func (t *topicsTool) check() error {
	if len(t.e.Args) == 0 {
		return t.usage("Create, delete, describe, or change a topic.")
	}
	if err := t.helpOrVersion("This tool helps to create, delete, describe, or change a topic."); err != nil {
		return err
	}
	n := 0
	for _, o := range []*Option{t.create, t.list, t.alter, t.describe, t.delete} {
		if t.p.Has(o) {
			n++
		}
	}
	if n != 1 {
		return t.usage("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
	}
	if t.p.Has(t.deleteConfig) {
		t.e.Errorf("delete-config option is no longer supported and deprecated since version 4.0. The config will be fully removed in future releases.")
	}
	if !t.p.Has(t.bootstrap) {
		return illegalArgument("--bootstrap-server must be specified")
	}
	if t.p.Has(t.describe) && t.p.Has(t.ifExists) {
		if !t.p.Has(t.topic) && !t.p.Has(t.topicID) {
			return t.usage("--topic or --topic-id is required to describe a topic")
		}
		if t.p.Has(t.topic) && t.p.Has(t.topicID) {
			t.e.Println("Only topic id will be used when both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID")
		}
	}
	if !t.p.Has(t.list) && !t.p.Has(t.describe) {
		if err := t.require(t.topic); err != nil {
			return err
		}
	}
	if t.p.Has(t.alter) {
		if t.p.Has(t.config) {
			return t.usage(fmt.Sprintf("Option combination \"[%s, %s]\" can't be used with option \"%s\" (To alter topic configurations, the kafka-configs tool can be used.)", t.bootstrap, t.config, t.alter))
		}
		if err := t.require(t.partitions); err != nil {
			return err
		}
	}
	all := []*Option{t.alter, t.create, t.describe, t.list, t.delete}
	filters := []*Option{t.underReplicated, t.underMinISR, t.atMinISR, t.unavailable}
	except := func(list []*Option, keep ...*Option) []*Option {
		var out []*Option
		for _, o := range list {
			skip := false
			for _, k := range keep {
				skip = skip || o == k
			}
			if !skip {
				out = append(out, o)
			}
		}
		return out
	}
	checks := []struct {
		used   *Option
		others []*Option
	}{
		{t.config, except(all, t.alter, t.create)},
		{t.partitions, except(all, t.alter, t.create)},
		{t.factor, except(all, t.create, t.alter)},
		{t.assignment, except(all, t.create, t.alter)},
		{t.underReplicated, append(except(all, t.describe), t.overrides)},
		{t.underMinISR, append(except(all, t.describe), t.overrides)},
		{t.atMinISR, append(except(all, t.describe), t.overrides)},
		{t.unavailable, append(except(all, t.describe), t.overrides)},
		{t.overrides, append(except(all, t.describe), filters...)},
		{t.ifExists, except(all, t.alter, t.delete, t.describe)},
		{t.ifNotExists, except(all, t.create)},
		{t.excludeInternal, except(all, t.list, t.describe)},
	}
	for _, c := range checks {
		if c.used == t.assignment && t.p.Has(t.create) {
			if err := t.exclude(t.assignment, t.partitions, t.factor); err != nil {
				return err
			}
		}
		// Kafka names the action first where an option belongs to another, --partitions and --replica-assignment excepted.
		if err := t.exclude(c.used, c.others...); err != nil {
			return err
		}
	}
	return nil
}

// replicaAssignment reads 1:2:3,2:3:1.
func replicaAssignment(s string) ([][]int32, error) {
	var out [][]int32
	for i, part := range strings.Split(s, ",") {
		var replicas []int32
		seen := map[int32]bool{}
		var twice []string
		for _, r := range strings.Split(part, ":") {
			r = strings.TrimSpace(r)
			n, err := strconv.ParseInt(r, 10, 32)
			if err != nil {
				return nil, &JavaError{Class: "java.lang.NumberFormatException", Text: fmt.Sprintf("For input string: \"%s\"", r)}
			}
			if seen[int32(n)] {
				twice = append(twice, strconv.FormatInt(n, 10))
			}
			seen[int32(n)] = true
			replicas = append(replicas, int32(n))
		}
		if len(twice) > 0 {
			return nil, &JavaError{Class: "org.apache.kafka.tools.AdminCommandFailedException", Text: "Partition replica lists may not contain duplicate entries: " + strings.Join(twice, ",")}
		}
		if i > 0 && len(replicas) != len(out[0]) {
			return nil, &JavaError{Class: "org.apache.kafka.tools.AdminOperationException", Text: fmt.Sprintf("Partition %d has different replication factor: [%s]", i, joinInts(replicas, ", "))}
		}
		out = append(out, replicas)
	}
	return out, nil
}

// assignments is --replica-assignment, nil without it.
func (t *topicsTool) assignments() ([][]int32, error) {
	s, err := t.text(t.assignment)
	if err != nil || s == "" {
		return nil, err
	}
	return replicaAssignment(s)
}

func (t *topicsTool) createTopic() error {
	name, err := t.text(t.topic)
	if err != nil {
		return err
	}
	partitions, hasPartitions, err := t.p.Int(t.partitions)
	if err != nil {
		return err
	}
	factor, hasFactor, err := t.p.Int(t.factor)
	if err != nil {
		return err
	}
	assigned, err := t.assignments()
	if err != nil {
		return err
	}
	var configs []kmsg.CreateTopicsRequestTopicConfig
	for _, c := range t.p.All(t.config) {
		// Java's split drops empty ends: "a=" has one part, "a=b=c" three.
		parts := strings.Split(strings.TrimRight(c, "="), "=")
		if len(parts) != 2 {
			return illegalArgument("requirement failed: Invalid topic config: all configs to be added must be in the format \"key=val\".")
		}
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = strings.TrimSpace(parts[0]), kmsg.StringPtr(strings.TrimSpace(parts[1]))
		configs = append(configs, rc)
	}
	if strings.ContainsAny(name, "._") {
		t.e.Println(collisionWarning)
	}
	if hasFactor && (factor < 1 || factor > 32767) {
		return illegalArgument("The replication factor must be between 1 and 32767 inclusive")
	}
	if hasPartitions && partitions < 1 {
		return illegalArgument("The partitions must be greater than 0")
	}
	if name == "" {
		return exception("InvalidTopicException", "The given topic name '' cannot be represented in a request.")
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(min(t.admin.conf.int("request.timeout.ms"), 1<<31-1))
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor, rt.Configs = name, -1, -1, configs
	if hasPartitions {
		rt.NumPartitions = int32(partitions)
	}
	if hasFactor {
		rt.ReplicationFactor = int16(factor)
	}
	for i, replicas := range assigned {
		ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		ra.Partition, ra.Replicas = int32(i), replicas
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	}
	req.Topics = append(req.Topics, rt)
	r, err := t.admin.controller("createTopics", req)
	if err != nil {
		return err
	}
	for _, res := range r.(*kmsg.CreateTopicsResponse).Topics {
		if err := codeError(res.ErrorCode, res.ErrorMessage); err != nil {
			if res.ErrorCode == 36 && t.p.Has(t.ifNotExists) { // TOPIC_ALREADY_EXISTS
				return nil
			}
			return err
		}
	}
	t.e.Printf("Created topic %s.\n", name)
	return nil
}

// topicNames lists all topics, internal ones too.
func topicNames(a *admin) ([]string, error) {
	resp, err := allTopics(a)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range resp.Topics {
		if t.Topic != nil {
			out = append(out, *t.Topic)
		}
	}
	sort.Strings(out)
	return out, nil
}

// allTopics is the metadata of everything.
func allTopics(a *admin) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil
	req.AllowAutoTopicCreation = false
	r, err := a.any("listTopics", req)
	if err != nil {
		return nil, err
	}
	return r.(*kmsg.MetadataResponse), nil
}

// chosen is the topics that --topic picks, in alphabetical order.
func (t *topicsTool) chosen(excludeInternal bool) ([]string, error) {
	names, err := topicNames(t.admin)
	if err != nil {
		return nil, err
	}
	pattern, err := t.text(t.topic)
	if err != nil {
		return nil, err
	}
	var re *regexp.Regexp
	if t.p.Has(t.topic) {
		if re, err = topicFilter(pattern); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, n := range names {
		if (re == nil || re.MatchString(n)) && !(excludeInternal && internalTopic(n)) {
			out = append(out, n)
		}
	}
	return out, nil
}

// mustExist complains when a topic was asked for and none was found.
func (t *topicsTool) mustExist(found []string) error {
	pattern, err := t.text(t.topic)
	if err != nil {
		return err
	}
	if pattern != "" && len(found) == 0 && !t.p.Has(t.ifExists) {
		return illegalArgument(fmt.Sprintf("Topic '%s' does not exist as expected", pattern))
	}
	return nil
}

func (t *topicsTool) listTopics() error {
	names, err := t.chosen(t.p.Has(t.excludeInternal))
	if err != nil {
		return err
	}
	t.e.Println(strings.Join(names, "\n"))
	return nil
}

func (t *topicsTool) alterTopic() error {
	names, err := t.chosen(false)
	if err != nil {
		return err
	}
	if err := t.mustExist(names); err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	partitions, _, err := t.p.Int(t.partitions)
	if err != nil {
		return err
	}
	assigned, err := t.assignments()
	if err != nil {
		return err
	}
	described, err := describeTopics(t.admin, names, nil, t.limit())
	if err != nil {
		return err
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(min(t.admin.conf.int("request.timeout.ms"), 1<<31-1))
	for _, d := range described {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = d.name, int32(partitions)
		if assigned != nil {
			have := len(d.partitions)
			rt.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{}
			for i := have; i < len(assigned); i++ {
				ra := kmsg.NewCreatePartitionsRequestTopicAssignment()
				ra.Replicas = assigned[i]
				rt.Assignment = append(rt.Assignment, ra)
			}
		}
		req.Topics = append(req.Topics, rt)
	}
	r, err := t.admin.controller("createPartitions", req)
	if err != nil {
		return err
	}
	for _, res := range r.(*kmsg.CreatePartitionsResponse).Topics {
		if err := codeError(res.ErrorCode, res.ErrorMessage); err != nil {
			return err
		}
	}
	return nil
}

func (t *topicsTool) deleteTopic() error {
	names, err := t.chosen(false)
	if err != nil {
		return err
	}
	if err := t.mustExist(names); err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = int32(min(t.admin.conf.int("request.timeout.ms"), 1<<31-1))
	req.TopicNames = names // up to version 5
	for _, n := range names {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, rt)
	}
	r, err := t.admin.controller("deleteTopics", req)
	if err != nil {
		return err
	}
	for _, res := range r.(*kmsg.DeleteTopicsResponse).Topics {
		if err := codeError(res.ErrorCode, res.ErrorMessage); err != nil {
			return err
		}
	}
	return nil
}

func (t *topicsTool) limit() int32 {
	n, ok, err := t.p.Int(t.sizeLimit)
	if err != nil || !ok {
		return 2000
	}
	return int32(n)
}

func (t *topicsTool) describeTopic() error {
	if _, _, err := t.p.Int(t.sizeLimit); err != nil {
		return err
	}
	idText, err := t.text(t.topicID)
	if err != nil {
		return err
	}
	var described []topicDescription
	var id kafka.TopicID
	if idText != "" {
		if id, err = parseUUID(idText); err != nil {
			return err
		}
	}
	if id != (kafka.TopicID{}) {
		described, err = describeTopics(t.admin, nil, &id, t.limit())
		if err != nil {
			var j *JavaError
			if !errors.As(err, &j) || (j.Code != 100 && j.Code != 3) {
				return err
			}
		}
		if len(described) == 0 {
			if t.p.Has(t.ifExists) {
				return nil
			}
			return illegalArgument(fmt.Sprintf("TopicId '%s' does not exist as expected", idText))
		}
	} else {
		names, err := t.chosen(t.p.Has(t.excludeInternal))
		if err != nil {
			return err
		}
		if err := t.mustExist(names); err != nil {
			return err
		}
		if len(names) == 0 {
			return nil
		}
		if described, err = describeTopics(t.admin, names, nil, t.limit()); err != nil {
			return err
		}
	}
	return t.printDescribed(described)
}
