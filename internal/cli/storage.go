package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// terse is an error of which a tool prints nothing but the text.
type terse string

func (t terse) Error() string { return string(t) }

func tersef(format string, args ...any) error { return terse(fmt.Sprintf(format, args...)) }

// runStorage is kafka-storage: format, info, version-mapping, feature-dependencies, random-uuid. The formatting itself is
// in storage_format.go, SCRAM credentials in storage_scram.go.
func runStorage(e *Env) int {
	p := storageParser()
	n, err := p.Parse(e.Args, e.Stdout)
	if err != nil {
		return HandleError(e.Stderr, err)
	}
	switch n.Command {
	case "info":
		var problems bool
		if problems, err = storageInfo(e, n); err == nil && problems {
			return 1
		}
	case "format":
		err = storageFormat(e, n)
	case "version-mapping":
		err = storageVersionMapping(e, n)
	case "feature-dependencies":
		err = storageFeatureDependencies(e, n)
	case "random-uuid":
		var u kafka.UUID
		if u, err = drawUUID(); err == nil {
			e.Println(u)
		}
	}
	if err == nil {
		return 0
	}
	var t terse
	if errors.As(err, &t) {
		e.Errorf("%s", t)
		return 1
	}
	e.Errorf("Exception in thread \"main\" %s", javaLine(err))
	printCauses(e, err)
	return 1
}

func storageParser() *ArgParser {
	configArg := Arg{Names: []string{"--config", "-c"}, Meta: "CONFIG", Required: true, Help: "The server's configuration file."}
	p := &ArgParser{Prog: "kafka-storage", Description: "Prepares and shows the directories of a node."}
	info := p.Sub("info", "Show what the log directories of this node say.")
	info.Add(configArg)
	format := p.Sub("format", "Format the log directories of this node.")
	format.Add(configArg)
	format.Add(Arg{Names: []string{"--cluster-id", "-t"}, Meta: "CLUSTER_ID", Required: true, Help: "The id of the cluster."})
	format.Add(Arg{Names: []string{"--add-scram", "-S"}, Meta: "ADD_SCRAM", Repeat: true,
		Help: "A SCRAM credential that the cluster begins with, such as SCRAM-SHA-256=[name=alice,password=alice-secret] or " +
			"SCRAM-SHA-512=[name=alice,iterations=8192,salt=\"N3E=\",saltedpassword=\"YCE=\"]."})
	format.Add(Arg{Names: []string{"--ignore-formatted", "-g"}, Help: "Skip directories that are formatted already."})
	format.Add(Arg{Names: []string{"--release-version", "-r"}, Meta: "RELEASE_VERSION",
		Help: fmt.Sprintf("The release whose features the cluster begins with, from %s; the default is %s.", metadata.MinVersion, metadata.LatestProductionVersion)})
	format.Add(Arg{Names: []string{"--feature", "-f"}, Meta: "FEATURE", Repeat: true, Help: "The level of one feature, as feature=level."})
	format.Group(false,
		Arg{Names: []string{"--standalone", "-s"}, Help: "Begin a dynamic quorum with this controller alone."},
		Arg{Names: []string{"--no-initial-controllers", "-N"}, Help: "Format without saying who is in the dynamic quorum."},
		Arg{Names: []string{"--initial-controllers", "-I"}, Meta: "INITIAL_CONTROLLERS",
			Help: "Begin a dynamic quorum with these controllers, id@host:port:directory each, with commas between; the same for every node."})
	mapping := p.Sub("version-mapping", "Show the levels of all features that go with a metadata.version.")
	mapping.Add(Arg{Names: []string{"--release-version", "-r"}, Meta: "RELEASE_VERSION",
		Help: fmt.Sprintf("The metadata.version, from %s; the default is %s.", metadata.MinVersion, metadata.LatestProductionVersion)})
	dependencies := p.Sub("feature-dependencies", "Show which features a level of a feature needs.")
	dependencies.Add(Arg{Names: []string{"--feature", "-f"}, Meta: "FEATURE", Required: true, Repeat: true,
		Help: "The level of a feature, as feature=level; several times for several."})
	p.Sub("random-uuid", "Print a random id.")
	return p
}

// storageConfig reads the configuration of the node whose directories are meant.
func storageConfig(path string) (*config.Broker, error) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &JavaError{Class: "java.nio.file.NoSuchFileException", Text: path}
	case errors.Is(err, fs.ErrPermission):
		return nil, &JavaError{Class: "java.nio.file.AccessDeniedException", Text: path}
	case err != nil:
		return nil, err
	}
	p, err := config.ParseProperties(b)
	if err == nil {
		err = p.Resolve(config.Providers{Env: os.LookupEnv, File: os.ReadFile})
	}
	var c *config.Broker
	if err == nil {
		c, err = config.NewBroker(p)
	}
	if err != nil {
		var ce *config.Error
		if errors.As(err, &ce) {
			return nil, &JavaError{Class: ce.Class, Text: ce.Text}
		}
		return nil, err
	}
	return c, nil
}

// storageDirs are the log directories and the metadata log's, each once, sorted.
func storageDirs(c *config.Broker) []string {
	dirs := slices.Sorted(slices.Values(append(slices.Clone(c.LogDirs), c.MetadataLogDir)))
	return slices.Compact(dirs)
}

// storageVersion is the metadata.version of a release's name.
func storageVersion(name string, unstable bool) (metadata.Version, error) {
	v, ok := metadata.VersionFromName(name)
	if ok && (unstable || v <= metadata.LatestProductionVersion) {
		return v, nil
	}
	var names []string
	for _, v := range metadata.Versions() {
		if unstable || v <= metadata.LatestProductionVersion {
			names = append(names, v.String())
		}
	}
	return 0, tersef("Unknown metadata.version '%s'. Supported metadata.version are: %s", name, strings.Join(names, ", "))
}

func storageFormat(e *Env, n *Namespace) error {
	c, err := storageConfig(n.Get("config"))
	if err != nil {
		return err
	}
	f := storageFormatter{
		fs: osfs.New(""), now: time.Now(), random: drawUUID, out: e.Stdout,
		nodeID: c.NodeID, clusterID: n.Get("cluster-id"), writeSnapshot: c.IsController, ignoreFormatted: n.Has("ignore-formatted"),
		unstable: c.Bool("unstable.feature.versions.enable"), metadataDir: c.MetadataLogDir, dirs: storageDirs(c),
		dynamicQuorum: len(c.Voters) == 0, scram: n.All("add-scram"),
	}
	if len(c.ControllerListenerNames) == 0 {
		return terse("You must specify the name of the initial controller listener.")
	}
	listener := c.ControllerListenerNames[0]
	if r := n.Get("release-version"); r != "" {
		if f.release, err = storageVersion(r, f.unstable); err != nil {
			return err
		}
	}
	for _, s := range n.All("feature") {
		l, err := parseFeatureLevel(s)
		if err != nil {
			return err
		}
		f.features = append(f.features, l)
	}
	if !f.dynamicQuorum && (n.Has("initial-controllers") || n.Has("standalone")) {
		return terse("You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. " +
			"If you want to use dynamic quorum, please remove controller.quorum.voters and specify controller.quorum.bootstrap.servers instead.")
	}
	switch {
	case n.Has("initial-controllers"):
		if f.voters, err = parseVoters(n.Get("initial-controllers"), listener); err != nil {
			return err
		}
	case n.Has("standalone"):
		if !c.IsController {
			return terse("You can only use --standalone on a controller.")
		}
		if len(c.AdvertisedController) == 0 {
			return &JavaError{Class: "java.lang.RuntimeException", Text: "No controller listeners found."}
		}
		id, err := drawUUID()
		if err != nil {
			return err
		}
		at := c.AdvertisedController[0]
		f.voters = []metadata.Voter{{ID: c.NodeID, DirectoryID: id,
			Endpoints: []metadata.Endpoint{{Name: at.Listener, Host: at.Host, Port: uint16(at.Port)}}}}
	case f.dynamicQuorum && c.IsController && !n.Has("no-initial-controllers"):
		return terse("Because controller.quorum.voters is not set on this controller, you must specify one of the following: " +
			"--standalone, --initial-controllers, or --no-initial-controllers.")
	}
	return f.run()
}

// parseFeatureLevel reads "group.version=1".
func parseFeatureLevel(s string) (metadata.FeatureSetting, error) {
	name, level, ok := strings.Cut(s, "=")
	if !ok {
		return metadata.FeatureSetting{}, &JavaError{Class: "java.lang.RuntimeException",
			Text: fmt.Sprintf("Can't parse feature=level string %s: equals sign not found.", s)}
	}
	l, err := strconv.ParseInt(level, 10, 16)
	if err != nil {
		return metadata.FeatureSetting{}, &JavaError{Class: "java.lang.RuntimeException",
			Text: fmt.Sprintf("Can't parse feature=level string %s: unable to parse %s as a short.", s, level)}
	}
	return metadata.FeatureSetting{Name: strings.TrimSpace(name), Level: int16(l)}, nil
}

func storageVersionMapping(e *Env, n *Namespace) error {
	v := metadata.LatestProductionVersion
	if r := n.Get("release-version"); r != "" {
		var err error
		if v, err = storageVersion(r, true); err != nil {
			return err
		}
	}
	e.Printf("metadata.version=%d (%s)\n", v, v)
	for _, name := range metadata.FeatureNames() {
		e.Printf("%s=%d\n", name, metadata.DefaultLevel(name, v))
	}
	return nil
}

func storageFeatureDependencies(e *Env, n *Namespace) error {
	for _, s := range n.All("feature") {
		name, level, ok := strings.Cut(s, "=")
		if !ok || strings.Contains(level, "=") {
			return tersef("Invalid feature format: %s. Expected format: 'feature=version' (e.g. 'group.version=1')", s)
		}
		l, err := strconv.ParseInt(level, 10, 16)
		if err != nil {
			return tersef("Invalid version format: %s for feature %s", level, name)
		}
		if name == metadata.MetadataVersionFeature {
			v := metadata.Version(l)
			if !v.Known() {
				return tersef("Unknown metadata.version %d", l)
			}
			e.Printf("%s=%d (%s) has no dependencies.\n", name, l, v)
			continue
		}
		levels := metadata.LevelsOf(name)
		if len(levels) == 0 {
			return tersef("Unknown feature: %s", name)
		}
		i := slices.IndexFunc(levels, func(f metadata.FeatureLevel) bool { return int64(f.Level) == l })
		switch {
		case i < 0:
			return tersef("Feature level %d is not supported for feature %s", l, name)
		case len(levels[i].Dependencies) == 0:
			e.Printf("%s=%d has no dependencies.\n", name, l)
			continue
		}
		e.Printf("%s=%d requires:\n", name, l)
		for _, d := range levels[i].Dependencies {
			if d.Feature == metadata.MetadataVersionFeature {
				e.Printf("    %s=%d (%s)\n", d.Feature, d.Level, metadata.Version(d.Level))
			} else {
				e.Printf("    %s=%d\n", d.Feature, d.Level)
			}
		}
	}
	return nil
}
