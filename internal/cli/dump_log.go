package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// dumpLog is kafka-dump-log. It reads files as they are and changes none; a file that a running node writes to may be dumped,
// and ends where it ended when it was opened.
type dumpLog struct {
	*toolArgs
	line []byte // the line in the making

	print, verifyOnly, sanityOnly, files, maxMessage, maxBytes, deep          *Option
	valueDecoder, keyDecoder                                                  *Option
	offsets, transactions, clusterMetadata, remoteMetadata, shareState, short *Option

	// What was found wrong is said at the end, by file in the order of Java's HashMap.
	mismatches     faults
	timestamps     faults
	timestampOrder faults
	shallow        faults
	gaps           faults
}

func runDumpLog(e *Env) int {
	d := &dumpLog{toolArgs: newToolArgs(e)}
	return runTool(d.run, func(err error) {
		e.Errorf("Exception in thread \"main\" %s", javaLine(err))
		printCauses(e, err)
	})
}

func (d *dumpLog) options() {
	const decoder = "org.apache.kafka.tools.api.StringDecoder"
	d.print = d.Flag("print-data-log", "Print the records, too. Every decoder option implies it.")
	d.verifyOnly = d.Flag("verify-index-only", "Only verify an index against its log, without printing it.")
	d.sanityOnly = d.Flag("index-sanity-check", "Only make the check of an index that a broker makes at start to decide whether to rebuild it.")
	d.files = d.Value("files", "file1, file2, ...", "REQUIRED: The data and index files to dump, with commas.")
	d.maxMessage = d.Value("max-message-size", "Integer: size", "Size of the largest batch that an index may point to.").Default("5242880")
	d.maxBytes = d.Value("max-bytes", "Integer: size", "The most bytes of batches to read of each .log file.").Default(strconv.Itoa(math.MaxInt32))
	d.deep = d.Flag("deep-iteration", "Look into batches at each record. --print-data-log implies it.")
	d.valueDecoder = d.Optional("value-decoder-class", "String", "How to print values: org.apache.kafka.tools.api. and StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder.").Default(decoder)
	d.keyDecoder = d.Optional("key-decoder-class", "String", "How to print keys: one of the same classes.").Default(decoder)
	d.offsets = d.Flag("offsets-decoder", "Print records as those of __consumer_offsets.")
	d.transactions = d.Flag("transaction-log-decoder", "Print records as those of __transaction_state.")
	d.clusterMetadata = d.Flag("cluster-metadata-decoder", "Print records as those of __cluster_metadata.")
	d.remoteMetadata = d.Flag("remote-log-metadata-decoder", "Print records as those of __remote_log_metadata.")
	d.shareState = d.Flag("share-group-state-decoder", "Print records as those of __share_group_state.")
	d.short = d.Flag("skip-record-metadata", "Print key and value of records only, and no control records.")
}

func (d *dumpLog) run() error {
	d.options()
	if err := d.parse(); err != nil {
		return err
	}
	if err := d.helpOrVersion("This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly corrupt log segment."); err != nil {
		return err
	}
	if err := d.require(d.files); err != nil {
		return err
	}
	list, err := d.text(d.files)
	if err != nil {
		return err
	}
	for _, path := range splitJava(list) {
		if err := d.file(cleanJavaPath(path)); err != nil {
			return err
		}
	}
	d.mismatches.print(d.e, "Mismatches in :", "  Index offset: %d, log offset: %d")
	d.timestamps.print(d.e, "Found timestamp mismatch in :", "  Index timestamp: %d, log timestamp: %d")
	d.timestampOrder.print(d.e, "Found out of order timestamp in :", "  Index timestamp: %d, Previously indexed timestamp: %d")
	d.shallow.print(d.e, "The following indexed offsets are not found in :", "Indexed offset: %d, found log offset: %d")
	d.gaps.print(d.e, "Non-consecutive offsets in ", "  %d is followed by %d")
	return nil
}

func (d *dumpLog) file(path string) error {
	d.e.Printf("Dumping %s\n", path)
	switch name := base(path); filepath.Ext(name) {
	case ".log", ".checkpoint":
		return d.dumpSegment(path)
	case ".index":
		maxMessage, _, err := d.p.Int(d.maxMessage)
		if err != nil {
			return err
		}
		return d.dumpOffsetIndex(path, maxMessage)
	case ".timeindex":
		return d.dumpTimeIndex(path)
	case ".snapshot":
		return d.dumpProducers(path)
	case ".txnindex":
		return d.dumpTransactionIndex(path)
	}
	d.e.Errorf("Ignoring unknown file %s", path)
	return nil
}

// write hands the line on and begins another.
func (d *dumpLog) write() error {
	_, err := d.e.Stdout.Write(d.line)
	d.line = d.line[:0]
	return err
}

// faults are pairs of numbers by file.
type faults struct {
	files []string
	pairs map[string][][2]int64
}

func (f *faults) add(path string, a, b int64) {
	path = absolute(path)
	if f.pairs == nil {
		f.pairs = make(map[string][][2]int64)
	}
	if _, ok := f.pairs[path]; !ok {
		f.files = append(f.files, path)
	}
	f.pairs[path] = append(f.pairs[path], [2]int64{a, b})
}

// unique sorts a file's pairs by their first number, and of those with the same one keeps the last: Kafka collects into a map.
func (f *faults) unique(path string, descending bool) {
	path = absolute(path)
	list := f.pairs[path]
	if list == nil {
		return
	}
	slices.SortStableFunc(list, func(a, b [2]int64) int {
		if descending {
			a, b = b, a
		}
		return cmp.Compare(a[0], b[0])
	})
	out := list[:0]
	for i, p := range list {
		if n := len(out); n > 0 && out[n-1][0] == p[0] {
			// Stable: of equal ones the later was added later, in both directions, for only order between different ones turns.
			out[n-1] = p
			continue
		}
		out = append(out, list[i])
	}
	f.pairs[path] = out
}

func (f *faults) print(e *Env, head, format string) {
	for _, path := range javaOrder(f.files, 0) {
		e.Errorf("%s%s", head, path)
		for _, p := range f.pairs[path] {
			e.Errorf(format, p[0], p[1])
		}
	}
}

// splitJava is String.split(","): empty strings at the end don't count.
func splitJava(s string) []string {
	if s == "" {
		return []string{""}
	}
	list := strings.Split(s, ",")
	for len(list) > 0 && list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

// cleanJavaPath is what java.io.File makes of a path: no double slashes, none at the end.
func cleanJavaPath(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '/' && i > 0 && path[i-1] == '/' {
			continue
		}
		b.WriteByte(path[i])
	}
	if out := b.String(); len(out) > 1 {
		return strings.TrimSuffix(out, "/")
	}
	return b.String()
}

// base is File.getName.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// absolute is File.getAbsolutePath, which resolves no "." and "..".
func absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if path == "" {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + path
}

// beside is the file of the same segment with another suffix.
func beside(path, suffix string) string {
	path = absolute(path)
	name := base(path)
	first, _, _ := strings.Cut(name, ".")
	return strings.TrimSuffix(path, name) + first + suffix
}

// firstOffset is the offset that a file's name begins with.
func firstOffset(path string) (int64, error) {
	first, _, _ := strings.Cut(base(path), ".")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0, notANumber(first)
	}
	return n, nil
}

func notANumber(s string) error {
	return &JavaError{Class: "java.lang.NumberFormatException", Text: fmt.Sprintf("For input string: %q", s)}
}

// fileError is what Java throws for an error of the file system.
func fileError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &JavaError{Class: "java.nio.file.NoSuchFileException", Text: path}
	case errors.Is(err, fs.ErrPermission):
		return &JavaError{Class: "java.nio.file.AccessDeniedException", Text: path}
	}
	text := err.Error()
	var p *fs.PathError
	if errors.As(err, &p) {
		text = p.Err.Error()
	}
	return &JavaError{Class: "java.io.IOException", Text: text}
}
