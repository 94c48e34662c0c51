package main

import (
	"bytes"
	"strings"
	"testing"
)

// margin is how much worse than its goal a ratio may be here: the run is short, and whatever else the machine does is in it (a disk
// that was busy writing back has shown 2.7 times the goal of one row). What the goals are held to is the long run.
const margin = 8

// TestShort runs the short benchmark whole and fails on what is grossly wrong: a row that does not run, a ratio far above its goal,
// memory that grew without bound.
func TestShort(t *testing.T) {
	var out bytes.Buffer
	rep, err := run(options{short: true, kafka: "no", dir: t.TempDir()}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Logf("\n%s", out.String())
	for _, l := range loads {
		if goal := map[string]float64{"1.0": 1, "1.1": 1.1, "1.15": 1.15, "1.25": 1.25, "1.3": 1.3, "1.5": 1.5}[l.goal]; goal > 0 {
			switch got := rep.ratio(l.name, "highwater", "null"); {
			case got == 0:
				t.Errorf("%s was not measured", l.name)
			case got > goal*margin:
				t.Errorf("%s costs %.2f times what the null broker's does; the goal is %v", l.name, got, goal)
			}
		}
	}
	// The trials' goals are held to the long run: here they only have to give figures.
	for _, row := range []string{startRow(1000), memoryRow(1000), uncleanRow, compactRow, tailRow(1), tailRow(10)} {
		if _, ok := rep.Trials[row]["highwater"]; !ok {
			t.Errorf("%s was not measured", row)
		}
	}
	if m := rep.Memory["highwater"]; m[0] > 80 || m[1] > 300 {
		t.Errorf("highwater holds %.0f MB idle and %.0f MB under load; the goals are 40 and 150", m[0], m[1])
	}
}

// TestNull runs every row against the null broker alone: the yardstick itself takes all that the load gives, and hands it back.
func TestNull(t *testing.T) {
	var out bytes.Buffer
	rep, err := run(options{short: true, kafka: "no", noNode: true, scale: 0.01, dir: t.TempDir()}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, l := range loads {
		if f := rep.Figures[l.name]["null"]; f == nil || f.PerSec == 0 || !strings.Contains(out.String(), l.name) {
			t.Errorf("%s: %+v", l.name, f)
		}
	}
}

// TestNullRefuses: the null broker sees what is wrong with a batch, or it would be too cheap a yardstick.
func TestNullRefuses(t *testing.T) {
	r, err := startNull(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.stop()
	c, err := dial(r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, codec := range []string{"", "lz4", "zstd"} {
		batch, err := recordBatch(5000, 100, codec)
		if err != nil {
			t.Fatal(err)
		}
		send := func(b []byte) []byte {
			t.Helper()
			if _, err := c.Write(produceFrame("t", 1, b)); err != nil {
				t.Fatal(err)
			}
			a, err := c.frame(nil)
			if err != nil {
				t.Fatal(err)
			}
			return a[4+4+2+1+4+4:]
		}
		if code := send(batch)[:2]; code[1] != 0 {
			t.Errorf("%q: a good batch gives code %v", codec, code)
		}
		bad := bytes.Clone(batch)
		bad[len(bad)-1] ^= 1
		if code := send(bad)[:2]; code[1] == 0 {
			t.Errorf("%q: a batch with a wrong CRC is taken", codec)
		}
		if codec == "" {
			continue
		}
		lies := bytes.Clone(batch) // one record more than there is
		lies[60]++
		lies = stamped(lies)
		if code := send(lies)[:2]; code[1] == 0 {
			t.Errorf("%q: a batch that counts wrongly is taken", codec)
		}
	}
	// What was written comes back, byte for byte but for the offset and the epoch.
	batch, _ := recordBatch(5000, 100, "zstd")
	if _, err := c.Write(fetchFrame("t", 0, 1<<20)); err != nil {
		t.Fatal(err)
	}
	a, err := c.frame(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(a, batch[61:]) {
		t.Error("a batch that was written does not come back")
	}
	if next, size, err := nextOffset(a, "t"); err != nil || next < 3 || size < len(batch) {
		t.Errorf("fetched up to %d, %d bytes, %v", next, size, err)
	}
}
