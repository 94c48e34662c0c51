package cli

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/config"
)

var rewriteGolden = flag.Bool("rewrite", false, "write the golden files anew")

// What `config check` prints of files good and bad stands in testdata/config; -rewrite writes it anew: read the diff.
func TestConfigCheck(t *testing.T) {
	t.Setenv("HIGHWATER_NODE", "7")
	dir := "testdata/config/"
	f := func(golden string, want int, args ...string) string {
		t.Helper()
		for i, a := range args {
			if strings.HasSuffix(a, ".properties") {
				args[i] = dir + a
			}
		}
		status, out, stderr := call(t, runConfig, append([]string{"check"}, args...)...)
		if status != want || stderr != "" {
			t.Errorf("%s: status %d, %s", golden, status, stderr)
		}
		if *rewriteGolden {
			if err := os.WriteFile(dir+golden, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(dir + golden)
		if err != nil {
			t.Fatal(err)
		}
		if out != string(text) {
			t.Errorf("%s is not what is printed; run the test with -rewrite and read the diff:\n%s", golden, out)
		}
		if strings.Contains(out, "geheim") {
			t.Errorf("%s shows a password", golden)
		}
		return out
	}
	f("faulty.txt", 1, "faulty.properties")
	f("single.txt", 0, "single.properties")
	f("single-strict.txt", 1, "--strict", "single.properties", "--override", "num.partitions=6")
	f("broker1.txt", 0, "broker1.properties")
	f("cluster.txt", 0, "--strict", "broker1.properties", "broker2.properties", "broker3.properties")
	f("controller11.txt", 0, "controller11.properties")
	f("clash.txt", 1, "broker1.properties", "broker2.properties", "clash.properties")
	f("variables.txt", 1, "variables.properties")
	f("security.txt", 1, "security.properties")
	f("unreadable.txt", 1, "unreadable.properties")

	var got checked
	if err := json.Unmarshal([]byte(f("faulty.json", 1, "--json", "faulty.properties")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Files) != 1 || got.Errors != 2 || got.Mistakes < 10 || len(got.Files[0].Keys) < 20 || got.Files[0].NodeID != 1 {
		t.Errorf("%+v", got)
	}
}

// The tool says of every file that a node does not start with what the start says, and nothing bad of those that it does.
func TestConfigCheckAgreesWithTheStart(t *testing.T) {
	base := map[string]string{"process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
		"listeners": "PLAINTEXT://h:1,CONTROLLER://h:2", "controller.quorum.voters": "1@h:2", "log.dirs": "/d"}
	for _, k := range config.BrokerTable.Keys {
		for _, value := range []string{"", "0", "-1", "1", "2", "true", "x", "9999999999999999999"} {
			m := map[string]string{}
			for key, v := range base {
				m[key] = v
			}
			m[k.Name] = value
			p := config.NewProperties(m)
			b, err := config.NewBroker(p)
			if err == nil {
				err = b.Refuse()
			}
			said := ""
			for _, f := range config.Explain("f", p).Findings {
				if f.Level == config.LevelError && (said == "" || err != nil && f.Text == err.Error()) {
					said = f.Text
				}
			}
			if err == nil && said != "" || err != nil && said != err.Error() {
				t.Errorf("%s=%s: the start says %v, config check %q", k.Name, value, err, said)
			}
		}
	}
}

func TestConfigUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"chekc"}, {"check"}, {"check", "--nonsense", "x"}} {
		if status, _, stderr := call(t, runConfig, args...); status != 2 || !strings.Contains(stderr, "usage: highwater config check") {
			t.Errorf("%v: %d %s", args, status, stderr)
		}
	}
	if status, _, stderr := call(t, runConfig, "check", "testdata/config/no-such-file"); status != 2 || !strings.Contains(stderr, "no-such-file") {
		t.Errorf("%d %s", status, stderr)
	}
}
