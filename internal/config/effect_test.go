package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var allTables = []*Table{BrokerTable, TopicTable, GroupTable, ClientMetricsTable, UserQuotaTable, IPQuotaTable, BrokerQuotaTable}

// literals is where each text stands in the program's sources: the files of package config that only state facts or judge
// values, and the tools, do not count. One that is part of a call of a getter counts as read.
func literals(t *testing.T) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	root := filepath.Join("..", "..", "internal")
	skip := map[string]bool{"config/effect.go": true, "config/removed.go": true, "config/describe.go": true, "config/docs.go": true,
		"config/dynamic.go": true, "config/validate.go": true, "config/group.go": true, "config/report.go": true, "config/checklist.go": true}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if name == "cli" || name == "schema" || name == "arch" || name == "sim" || name == "fixture" || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || skip[name] || strings.HasPrefix(name, "config/table_") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil {
					out[s] = append(out[s], name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func anyFileHas(t *testing.T, dir, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f, "_test.go") && strings.Contains(string(src), text) {
			return true
		}
	}
	return false
}

// Every key has an effect. Those in force are read by something, as a text in the sources shows; a broker's key may be
// read through the topic's key whose default it is. Those without effect are read by nothing, and say why.
func TestEveryKeyHasItsEffect(t *testing.T) {
	found := literals(t)
	throughTopic := make(map[string]bool)
	for _, k := range TopicTable.Keys {
		for _, s := range k.Synonyms {
			if k.Effect == InForce {
				throughTopic[s.Name] = true
			}
		}
	}
	// Read where the listeners are made out (validate.go): the fields that the node takes.
	for key, field := range map[string]string{"advertised.listeners": "AdvertisedBroker", "inter.broker.listener.name": "InterBrokerListener",
		"security.inter.broker.protocol": "InterBrokerListener"} {
		if !anyFileHas(t, filepath.Join("..", "node"), "."+field) {
			t.Errorf("%s: nobody reads Broker.%s", key, field)
		}
		found[key] = append(found[key], "config/validate.go")
	}
	for _, table := range allTables {
		count := make(map[Effect]int)
		for _, k := range table.Keys {
			count[k.Effect]++
			places := found[k.Name]
			switch k.Effect {
			case InForce:
				if len(places) == 0 && !(table == BrokerTable && throughTopic[k.Name]) {
					t.Errorf("%s: %s is said to be in force, but nothing reads it: say NoEffect and why in table_effect.go", table.Area, k.Name)
				}
				if k.Why != "" {
					t.Errorf("%s: %s is in force and needs no reason", table.Area, k.Name)
				}
			case NoEffect, Refused:
				if k.Why == "" {
					t.Errorf("%s: %s: no reason why it is %v", table.Area, k.Name, k.Effect)
				}
				for _, p := range places {
					if (table == BrokerTable || table == BrokerQuotaTable) && k.Effect == NoEffect && !strings.HasPrefix(p, "config/") {
						t.Errorf("%s is said to have no effect, but %s names it: move it to InForce in table_effect.go and run `make docs`", k.Name, p)
					}
				}
			default:
				t.Errorf("%s: %s has no effect class: add it to table_effect.go", table.Area, k.Name)
			}
		}
		t.Logf("%s: %d in force, %d without effect, %d refused", table.Area, count[InForce], count[NoEffect], count[Refused])
	}
}

// Every field of a topic's configuration that a key in force fills is read outside of this package.
func TestTopicFieldsAreRead(t *testing.T) {
	unread := map[string]bool{ // of keys without effect, or the controller's, which reads the key itself
		"UncleanLeaderElection": true, "LeaderThrottled": true, "FollowerThrottled": true, "RemoteStorage": true,
		"LocalRetentionMs": true, "LocalRetentionBytes": true,
	}
	f, err := parser.ParseFile(token.NewFileSet(), "topic.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		ts, ok := node.(*ast.TypeSpec)
		if !ok || ts.Name.Name != "Topic" {
			return true
		}
		for _, field := range ts.Type.(*ast.StructType).Fields.List {
			for _, name := range field.Names {
				n++
				if anyFileHas(t, filepath.Join("..", "node"), "t."+name.Name) == unread[name.Name] {
					t.Errorf("Topic.%s: read by package node: %v", name.Name, !unread[name.Name])
				}
			}
		}
		return false
	})
	if n < 30 {
		t.Errorf("only %d fields", n)
	}
}

// Keys without effect are named only if they ask for something else than the default; secrets are never shown.
func TestWithoutEffect(t *testing.T) {
	b := base(t, "num.io.threads", "16", "num.network.threads", "3", "background.threads", " 10 ", "ssl.keystore.password", "geheim",
		"super.users", "User:a", "listener.name.plaintext.ssl.keystore.password", "geheim", "listener.name.plaintext.max.connections", "5",
		"rsm.config.bucket", "b", "metric.reporters", "com.acme.Reporter", "zookeeper.connect", "z:1", "message.max.bytes", "1000")
	var got []string
	for _, n := range b.WithoutEffect() {
		if n.Text == "" {
			t.Errorf("%s: no reason", n.Key)
		}
		got = append(got, n.Key+"="+n.Value)
	}
	want := "listener.name.plaintext.ssl.keystore.password=[hidden] metric.reporters=com.acme.Reporter num.io.threads=16 rsm.config.bucket=b " +
		"ssl.keystore.password=[hidden] super.users=User:a"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}
