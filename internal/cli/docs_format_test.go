package cli

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

const formatDocs = "../../docs/format"

// formatPages reads the pages, by name.
func formatPages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(formatDocs + "/*.md")
	if err != nil || len(names) < 15 {
		t.Fatalf("%d pages, %v", len(names), err)
	}
	pages := map[string]string{}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(n)] = string(b)
	}
	return pages
}

// formatExample is a block of bytes on a page.
type formatExample struct {
	archive, file string
	from          int
	data          []byte
	comments      []string
}

var (
	formatSource = regexp.MustCompile("^From `([^`]+)`, `([^`]+)`: ")
	formatLine   = regexp.MustCompile(`^([0-9a-f]{4})  ((?:[0-9a-f]{2} ){0,15}[0-9a-f]{2})(?: +(.*))?$`)
)

// formatExamples takes the examples out of a page, and checks that their addresses go on.
func formatExamples(t *testing.T, page, text string) []formatExample {
	t.Helper()
	var out []formatExample
	var source []string
	in := false
	for i, l := range strings.Split(text, "\n") {
		switch {
		case l == "```hex":
			if source == nil {
				t.Fatalf("%s, line %d: an example of nothing", page, i+1)
			}
			in = true
			out = append(out, formatExample{archive: source[1], file: source[2], from: -1})
			source = nil
		case in && l == "```":
			in = false
		case in && l != "":
			e := &out[len(out)-1]
			m := formatLine.FindStringSubmatch(l)
			if m == nil {
				t.Fatalf("%s, line %d: not a line of an example: %q", page, i+1, l)
			}
			var at int
			if _, err := fmt.Sscanf(m[1], "%x", &at); err != nil {
				t.Fatal(err)
			}
			if e.from < 0 {
				e.from = at
			}
			if at != e.from+len(e.data) {
				t.Errorf("%s, line %d: address %x instead of %x", page, i+1, at, e.from+len(e.data))
			}
			b, err := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			e.data = append(e.data, b...)
			e.comments = append(e.comments, m[3])
		case !in && formatSource.MatchString(l):
			source = formatSource.FindStringSubmatch(l)
		}
	}
	return out
}

// TestFormatDocs compares the examples in docs/format with the files that they are from, and decodes each with the code that a
// node uses: what that says must stand beside the bytes.
func TestFormatDocs(t *testing.T) {
	decoders := map[string]func(e formatExample) ([]string, error){
		"meta-properties.md": func(e formatExample) ([]string, error) {
			m, err := storage.ParseMeta(e.data)
			id := fmt.Sprintf(`node.id=%d\n`, m.NodeID)
			if m.Version == 0 {
				id = fmt.Sprintf(`broker.id=%d\n`, m.NodeID)
			}
			return []string{id, fmt.Sprintf(`version=%d\n`, m.Version), `cluster.id=` + m.ClusterID + `\n`}, err
		},
		"partition-metadata.md": func(e formatExample) ([]string, error) {
			id, err := storage.ParsePartitionMetadata(e.data)
			return []string{"topic_id: " + id.String()}, err
		},
		"clean-shutdown.md": func(e formatExample) ([]string, error) {
			return []string{fmt.Sprintf(`{"version":0,"brokerEpoch":%d}`, storage.ParseCleanShutdown(e.data))}, nil
		},
		"offset-checkpoints.md": func(e formatExample) ([]string, error) {
			offsets, lines, err := storage.ParseOffsets(e.data)
			out := []string{`0\n`, fmt.Sprintf(`%d\n`, lines)}
			for p, o := range offsets {
				out = append(out, fmt.Sprintf(`%s %d %d\n`, p.Topic, p.Partition, o))
			}
			return out, err
		},
		"leader-epoch-checkpoint.md": func(e formatExample) ([]string, error) {
			epochs, err := storage.ParseEpochs(e.data)
			out := []string{`0\n`, fmt.Sprintf(`%d\n`, len(epochs))}
			for _, x := range epochs {
				out = append(out, fmt.Sprintf(`%d %d\n`, x.Epoch, x.Start))
			}
			return out, err
		},
		"log.md": func(e formatExample) ([]string, error) {
			b := record.Batch(e.data)
			if err := b.Check(); err != nil {
				return nil, err
			}
			out := []string{fmt.Sprintf("magic %d", b.Magic()), fmt.Sprintf("attributes %d", b.Attributes())}
			if b.Magic() == 2 {
				out = append(out, fmt.Sprintf("base offset %d", b.BaseOffset()), fmt.Sprintf("CRC-32C %08x of all that follows", b.CRC()),
					fmt.Sprintf("producer id %d", b.ProducerID()), fmt.Sprintf("base sequence %d", b.BaseSequence()), fmt.Sprintf("%d records", b.Count()),
					fmt.Sprintf("max timestamp %d", b.MaxTimestamp()), fmt.Sprintf("partition leader epoch %d", b.PartitionLeaderEpoch()))
			}
			for r, err := range b.All() {
				if err != nil {
					return nil, err
				}
				if b.Control() {
					m, err := record.ParseMarker(r.Key, r.Value)
					if err != nil {
						return nil, err
					}
					out = append(out, fmt.Sprintf("version 0, type %d: %s", m.Type, strings.ToLower(m.Type.String())), fmt.Sprintf("version 0, coordinator epoch %d", m.CoordinatorEpoch))
					continue
				}
				out = append(out, string(r.Key), string(r.Value))
			}
			return out, nil
		},
		"offset-index.md": func(e formatExample) (out []string, _ error) {
			for b := e.data; len(b) > 0; b = b[storage.OffsetIndexEntrySize:] {
				offset, position := storage.ParseOffsetIndexEntry(b)
				out = append(out, fmt.Sprintf("offset 0 + %d", offset), fmt.Sprintf("position %d", position))
			}
			return out, nil
		},
		"time-index.md": func(e formatExample) (out []string, _ error) {
			for b := e.data; len(b) > 0; b = b[storage.TimeIndexEntrySize:] {
				timestamp, offset := storage.ParseTimeIndexEntry(b)
				out = append(out, fmt.Sprintf("timestamp %d", timestamp), fmt.Sprintf("offset 0 + %d", offset))
			}
			return out, nil
		},
		"transaction-index.md": func(e formatExample) (out []string, _ error) {
			base, _, _ := storage.ParseSegmentFileName(path.Base(e.file))
			entries, err := storage.ParseAborted(e.data, base)
			for _, a := range entries {
				out = append(out, fmt.Sprintf("producer id %d", a.ProducerID), fmt.Sprintf("first offset %d", a.FirstOffset), fmt.Sprintf("last offset %d: the marker", a.LastOffset), fmt.Sprintf("last stable offset %d", a.LastStableOffset))
			}
			return out, err
		},
		"producer-snapshot.md": func(e formatExample) ([]string, error) {
			entries, err := storage.ParseProducerSnapshot(e.data)
			out := []string{fmt.Sprintf("%d entries", len(entries))}
			for _, p := range entries {
				out = append(out, fmt.Sprintf("producer id %d", p.ProducerID), fmt.Sprintf("epoch %d", p.ProducerEpoch), fmt.Sprintf("last sequence %d", p.LastSequence),
					fmt.Sprintf("last offset %d", p.LastOffset), fmt.Sprintf("last offset - first offset: %d", p.OffsetDelta), fmt.Sprintf("timestamp %d", p.Timestamp),
					fmt.Sprintf("coordinator epoch %d", p.CoordinatorEpoch), fmt.Sprintf("first offset of the open transaction %d", p.TxnFirstOffset))
			}
			return out, err
		},
		"metadata-snapshot.md":    formatCheckpoint,
		"bootstrap-checkpoint.md": formatCheckpoint,
		"quorum-state.md": func(e formatExample) ([]string, error) {
			q, err := raftloop.ParseQuorumState(e.data)
			line := raftloop.AppendQuorumState(nil, q)
			if err == nil && !bytes.Equal(line, e.data) {
				err = fmt.Errorf("encodes again to %s", line)
			}
			return []string{string(line)}, err
		},
	}
	pages := formatPages(t)
	for name, decode := range decoders {
		examples := formatExamples(t, name, pages[name])
		if len(examples) == 0 {
			t.Errorf("%s has no example", name)
		}
		for _, e := range examples {
			file, ok := fsckArchive(t, e.archive)[e.file]
			if !ok || e.from+len(e.data) > len(file) || !bytes.Equal(file[e.from:e.from+len(e.data)], e.data) {
				t.Errorf("%s: the bytes are not those of %s, %s", name, e.archive, e.file)
				continue
			}
			want, err := decode(e)
			if err != nil {
				t.Errorf("%s: the example from %s does not decode: %v", name, e.file, err)
			}
			for _, w := range want {
				if !slices.Contains(e.comments, w) {
					t.Errorf("%s: beside the example from %s should stand %q", name, e.file, w)
				}
			}
		}
	}
	for name := range pages {
		if decoders[name] == nil && name != "README.md" && name != "names.md" {
			t.Errorf("nothing decodes the examples of %s", name)
		}
	}
}

// formatCheckpoint reads a snapshot out of a file system of its own.
func formatCheckpoint(e formatExample) (out []string, err error) {
	m := vfs.NewMem()
	f, err := m.Create("checkpoint")
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(e.data, 0); err != nil {
		return nil, err
	}
	_, _, err = raftloop.ReadCheckpoint(m, "checkpoint", kafka.OffsetAndEpoch{}, func(b raftloop.Batch) error {
		for _, v := range b.Records {
			out = append(out, fmt.Sprintf("frame version %d, record type %d (FeatureLevelRecord), version %d; name %s, level %d", v[0], v[1], v[2], v[4:4+v[3]-1], v[4+v[3]]))
		}
		return nil
	})
	if len(out) == 0 && err == nil {
		err = fmt.Errorf("no record")
	}
	return out, err
}

// TestFormatDocsComplete: every file of code that knows a format, and every kind of file that Kafka leaves in a directory, has its
// page, and every page is in the index.
func TestFormatDocsComplete(t *testing.T) {
	pages := formatPages(t)
	var all strings.Builder
	for name, text := range pages {
		all.WriteString(text)
		if name != "README.md" && !strings.Contains(pages["README.md"], "("+name+")") {
			t.Errorf("README.md does not name %s", name)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(text, -1) {
			if pages[m[1]] == "" {
				t.Errorf("%s has a link to %s, which there is not", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`(internal/[^`]+)`").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat("../../" + m[1]); err != nil {
				t.Errorf("%s names %s: %v", name, m[1], err)
			}
		}
	}
	code := 0
	for _, dir := range []string{"storage", "raftloop"} {
		files, err := filepath.Glob("../" + dir + "/format_*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			if name := "internal/" + dir + "/" + filepath.Base(f); !strings.Contains(all.String(), "`"+name+"`") {
				t.Errorf("no page in docs/format names %s", name)
			}
			code++
		}
	}
	if code < 9 {
		t.Errorf("only %d files of code", code)
	}
	kinds := map[string]bool{}
	for _, archive := range []string{"single-4.4", "single-4.4-torn", "jbod-4.4", "cluster-4.4", "3.3.2-single", "3.9.2-zookeeper"} {
		for file := range fsckArchive(t, archive) {
			parts := strings.Split(file, "/")
			if len(parts) < 3 {
				continue // beside the directories
			}
			base := parts[len(parts)-1]
			kind := base
			if _, suffix, ok := storage.ParseSegmentFileName(base); ok {
				kind = suffix
				if last := path.Ext(suffix); last != suffix {
					kind = last // .deleted and the like, of whichever file
				}
				if kind == suffix {
					kind = "<offset>" + kind
				}
			} else if strings.Contains(base, ".checkpoint") && base != raftloop.BootstrapFile {
				kind = base[strings.Index(base, ".checkpoint"):]
				if kind == ".checkpoint" {
					kind = "<end offset>-<epoch>.checkpoint"
				}
			}
			kinds[kind] = true
			for _, suffix := range []string{"-delete", "-future", "-stray"} {
				if len(parts) > 3 && strings.HasSuffix(parts[len(parts)-2], suffix) {
					kinds[suffix] = true
				}
			}
		}
	}
	index := pages["README.md"] + pages["names.md"]
	for kind := range kinds {
		if !strings.Contains(index, "`"+kind+"`") && !strings.Contains(index, kind+"`") {
			t.Errorf("no page for files such as %s", kind)
		}
	}
	if len(kinds) < 16 {
		t.Errorf("only %d kinds of files: %v", len(kinds), kinds)
	}
}
