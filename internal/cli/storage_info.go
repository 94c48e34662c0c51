package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/highwater/highwater/internal/kafka"
)

// storageInfo shows what stands in the directories, whether or not a node could start on them.
func storageInfo(e *Env, n *Namespace) (problems bool, err error) {
	c, err := storageConfig(n.Get("config"))
	if err != nil {
		return false, err
	}
	dirs := storageDirs(c)
	var found, wrong []string
	var first map[string]string
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, dir+" does not exist")
			continue
		case err != nil:
			return false, err
		case !st.IsDir():
			wrong = append(wrong, dir+" is not a directory")
			continue
		}
		found = append(found, dir)
		name := dir + "/meta.properties"
		b, err := os.ReadFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			wrong = append(wrong, dir+" is not formatted.")
			continue
		case err != nil:
			return false, err
		}
		meta, err := readMetaProperties(string(b))
		switch {
		case err != nil:
			// Kafka prints the exception on standard output, and goes on.
			e.Println("java.lang.RuntimeException: " + err.Error())
			wrong = append(wrong, fmt.Sprintf("Error loading %s: %v", name, err))
		case first == nil:
			first = meta
		case first["cluster.id"] != meta["cluster.id"]:
			wrong = append(wrong, "Mismatched cluster IDs between storage directories.")
		case nodeIDOf(first) != nodeIDOf(meta):
			wrong = append(wrong, "Mismatched node IDs between storage directories.")
		}
	}
	if first != nil && first["version"] == "0" {
		wrong = append(wrong, "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are formatted for legacy mode.")
	}
	if len(found) > 0 {
		e.Println(plural("Found log directory:", "Found log directories:", len(found)))
		for _, d := range found {
			e.Println("  " + d)
		}
		e.Println()
	}
	if first != nil {
		var parts []string
		for _, k := range sortedKeys(first) {
			parts = append(parts, k+"="+first[k])
		}
		e.Println("Found metadata: {" + strings.Join(parts, ", ") + "}")
		e.Println()
	}
	if len(wrong) > 0 {
		e.Println(plural("Found problem:", "Found problems:", len(wrong)))
		for _, w := range wrong {
			e.Println("  " + w)
		}
		e.Println()
	}
	return len(wrong) > 0, nil
}

func plural(one, many string, n int) string {
	if n == 1 {
		return one
	}
	return many
}

func nodeIDOf(meta map[string]string) string {
	if meta["version"] == "0" {
		return meta["broker.id"]
	}
	return meta["node.id"]
}

// readMetaProperties checks a meta.properties as Kafka's builder does and gives what Kafka prints of it.
func readMetaProperties(text string) (map[string]string, error) {
	given := make(map[string]string)
	for _, p := range parseProperties(text) {
		given[p.Key] = p.Value
	}
	out := map[string]string{"version": "0"}
	if v, ok := given["version"]; ok {
		n, err := strconv.ParseInt(v, 10, 32)
		switch {
		case err != nil:
			return nil, fmt.Errorf("Invalid meta.properties version string '%s'", v)
		case n < 0 || n > 1:
			return nil, fmt.Errorf("Unknown meta.properties version number %d", n)
		}
		out["version"] = strconv.FormatInt(n, 10)
	}
	key, required := "broker.id", false
	if out["version"] == "1" {
		key, required = "node.id", true
	}
	cluster, hasCluster := given["cluster.id"]
	if required && !hasCluster {
		return nil, errors.New("Failed to find cluster.id")
	}
	if hasCluster {
		out["cluster.id"] = cluster
	}
	node, hasNode := given[key]
	switch {
	case hasNode:
		n, err := strconv.ParseInt(node, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("Unable to read %s as a base-10 number.", key)
		}
		out[key] = strconv.FormatInt(n, 10)
	case required:
		return nil, fmt.Errorf("Failed to find %s", key)
	}
	if d, ok := given["directory.id"]; ok {
		u, err := kafka.ParseUUID(d)
		if err != nil {
			return nil, fmt.Errorf("Unable to read directory.id as a Uuid: %s", d)
		}
		out["directory.id"] = u.String()
	}
	return out, nil
}
