package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/highwater/highwater"

// listed is what `go list` says of a package.
type listed struct {
	ImportPath, Dir, Name, Export      string
	Standard                           bool
	GoFiles, TestGoFiles, XTestGoFiles []string
	IgnoredGoFiles                     []string
	Imports, TestImports, XTestImports []string
	Error                              *struct{ Err string }
}

func (l *listed) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, module), "/")
}

// tree lists every package of the module and, in exports, the compiled form of all that it imports.
var tree = sync.OnceValues(func() (t struct {
	ours    []*listed
	exports map[string]string
}, err error) {
	c := exec.Command("go", "list", "-e", "-deps", "-export", "-json=ImportPath,Dir,Name,Export,Standard,GoFiles,TestGoFiles,XTestGoFiles,IgnoredGoFiles,Imports,TestImports,XTestImports,Error", "./...", "maps", "slices", "time", "sync", "math/rand/v2")
	c.Dir = top()
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return t, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	t.exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		l := new(listed)
		if err := d.Decode(l); errors.Is(err, io.EOF) {
			return t, nil
		} else if err != nil {
			return t, err
		}
		t.exports[l.ImportPath] = l.Export
		if l.ImportPath == module || strings.HasPrefix(l.ImportPath, module+"/") {
			t.ours = append(t.ours, l)
		}
	}
})

func top() string {
	d, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return d
}

func ours(t *testing.T) []*listed {
	t.Helper()
	l, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(l.ours) < 5 {
		t.Fatalf("go list finds only %d packages", len(l.ours))
	}
	return l.ours
}

func find(path string) *row {
	for i := range packages {
		if packages[i].path == path {
			return &packages[i]
		}
	}
	return nil
}

// reach is every package that the row may import.
func (r *row) reach() map[string]bool {
	all := map[string]bool{}
	var add func(names string)
	add = func(names string) {
		for _, n := range strings.Fields(names) {
			parent, deep := strings.CutSuffix(n, "/...")
			for i := range packages {
				p := packages[i].path
				if (p == n || deep && (p == parent || strings.HasPrefix(p, parent+"/"))) && !all[p] {
					all[p] = true
					add(packages[i].from)
				}
			}
		}
	}
	add(r.from)
	if !slices.Contains(strings.Fields(ground), r.path) && !strings.HasPrefix(r.path, "test/") {
		add(ground)
	}
	return all
}

// allowed tells whether a package of class c may import one of class d.
func allowed(c, d class) bool {
	switch c {
	case pure:
		return d == pure
	case deterministic:
		return d == pure || d == deterministic
	case live:
		return d != tool
	default:
		return true
	}
}

// TestTable checks the table itself: every name in it has a row, and a ban on cycles.
func TestTable(t *testing.T) {
	for i := range packages {
		r := &packages[i]
		for _, n := range strings.Fields(r.from + " " + ground) {
			if find(strings.TrimSuffix(n, "/...")) == nil {
				t.Errorf("%s may import %s, which has no row", r.path, n)
			}
		}
		if r.reach()[r.path] {
			t.Errorf("%s may import itself", r.path)
		}
	}
}

// TestImports holds every import of a non-test file against the table.
func TestImports(t *testing.T) {
	for _, l := range ours(t) {
		r := find(l.path())
		if r == nil {
			t.Errorf("package %s is unknown: give it a row in internal/arch/table_test.go, with its class and what it may import", l.path())
			continue
		}
		may := r.reach()
		for _, imp := range l.Imports {
			if own, ok := strings.CutPrefix(imp, module+"/"); ok {
				switch other := find(own); {
				case other == nil:
				case !may[own]:
					t.Errorf("%s imports %s, which the table does not allow", r.path, own)
				case !allowed(r.class, other.class):
					t.Errorf("%s (%s) imports %s (%s)", r.path, r.class, own, other.class)
				}
				continue
			}
			if slices.Contains([]string{"os", "os/exec", "os/signal", "os/user", "net", "net/http", "syscall", "golang.org/x/sys/unix", "io/ioutil"}, imp) &&
				r.class != tool && !slices.Contains(seesWorld, r.path) && exceptions[r.path+" "+imp] == "" {
				t.Errorf("%s imports %s: only %s may", r.path, imp, strings.Join(seesWorld, ", "))
			}
			for dep, who := range outside {
				if (imp == dep || strings.HasPrefix(imp, dep+"/")) && r.class != tool && !slices.Contains(who, r.path) {
					t.Errorf("%s imports %s: only %s may", r.path, imp, strings.Join(who, ", "))
				}
			}
		}
		for _, imp := range slices.Concat(l.TestImports, l.XTestImports) {
			if own, ok := strings.CutPrefix(imp, module+"/"); ok && strings.HasPrefix(own, "test/") && !strings.HasPrefix(r.path, "test/") {
				t.Errorf("tests of %s import %s: a test beside the code needs no process", r.path, own)
			}
		}
	}
}

// banned are imports and functions that a class may not use, with "*" for all of a package.
var banned = map[class]map[string]string{
	pure: {
		"sync": "*", "sync/atomic": "*", "math/rand": "*", "crypto/rand": "*", "log": "*", "log/slog": "*", "runtime": "*", "context": "*", "io/fs": "*", "unsafe": "*",
		"time":         clock,
		"math/rand/v2": globalRandom,
	},
	deterministic: {
		"math/rand": "*", "crypto/rand": "*", "log": "*", "log/slog": "*", "context": "*",
		"time":         clock,
		"math/rand/v2": globalRandom,
	},
}

const (
	clock        = "Now Since Until Sleep After AfterFunc Tick NewTimer NewTicker"
	globalRandom = "Int IntN Int32 Int32N Int64 Int64N Uint Uint32 Uint32N Uint64 Uint64N UintN Float32 Float64 ExpFloat64 NormFloat64 N Perm Shuffle"
)

// exceptions are uses that a class bans and a package has a reason for.
var exceptions = map[string]string{
	"internal/vfs syscall": "numbers of errors, to tell a full disk from a broken one",
	"internal/codec sync":  "pools of compressors; a pool's content reaches no result",
}

// orderMark in a comment on the line of a range over a map, or on the line before it, says why the order cannot matter.
const orderMark = "any order"

// TestPurity checks the bodies of P and D packages: statements, functions and, in P, ranges over maps.
func TestPurity(t *testing.T) {
	l, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, p := range l.ours {
		r := find(p.path())
		if r == nil || r.class != pure && r.class != deterministic {
			continue
		}
		if p.Error != nil {
			t.Errorf("%s: %s", r.path, p.Error.Err)
			continue
		}
		seen++
		for _, bad := range impurities(t, p, r.class, r.path, l.exports) {
			t.Error(bad)
		}
	}
	if seen < 3 {
		t.Errorf("only %d pure and deterministic packages found", seen)
	}
}

func impurities(t *testing.T, p *listed, c class, path string, exports map[string]string) (bad []string) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return []string{err.Error()}
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(imp string) (io.ReadCloser, error) {
		f := exports[imp]
		if f == "" {
			return nil, fmt.Errorf("no compiled form of %s", imp)
		}
		return os.Open(f)
	})}
	if _, err := conf.Check(p.ImportPath, fset, files, info); err != nil {
		return []string{fmt.Sprintf("%s: %v", path, err)}
	}
	say := func(n ast.Node, format string, args ...any) {
		at := fset.Position(n.Pos())
		bad = append(bad, fmt.Sprintf("%s/%s:%d: (%s) %s", path, filepath.Base(at.Filename), at.Line, c, fmt.Sprintf(format, args...)))
	}
	for _, f := range files {
		marked := map[int]bool{}
		for _, g := range f.Comments {
			for _, c := range g.List {
				if strings.Contains(c.Text, orderMark) {
					line := fset.Position(c.End()).Line
					marked[line], marked[line+1] = true, true
				}
			}
		}
		for _, imp := range f.Imports {
			name := strings.Trim(imp.Path.Value, `"`)
			if banned[c][name] == "*" && exceptions[path+" "+name] == "" {
				say(imp, "imports %s", name)
			}
		}
		sorted := map[ast.Node]bool{} // maps.Keys(m) handed to slices.Sorted
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				say(n, "go statement")
			case *ast.SelectStmt:
				if c == pure {
					say(n, "select statement")
				}
			case *ast.ChanType:
				if c == pure {
					say(n, "channel")
				}
			case *ast.RangeStmt:
				if _, isMap := info.TypeOf(n.X).Underlying().(*types.Map); isMap && c == pure && n.Key != nil && !marked[fset.Position(n.Pos()).Line] {
					say(n, "range over a map: sort the keys, or say in a comment with the words %q why the order reaches no result", orderMark)
				}
			case *ast.CallExpr:
				if pkg, fn := callee(info, n); pkg == "slices" && strings.HasPrefix(fn, "Sorted") || pkg == "maps" && fn == "Collect" {
					for _, a := range n.Args {
						sorted[a] = true
					}
				} else if pkg == "maps" && slices.Contains([]string{"Keys", "Values", "All"}, fn) && c == pure && !sorted[n] && !marked[fset.Position(n.Pos()).Line] {
					say(n, "maps.%s: hand it to slices.Sorted, or say in a comment with the words %q why the order reaches no result", fn, orderMark)
				}
			case *ast.Ident:
				o := info.Uses[n]
				if o == nil || o.Pkg() == nil || o.Parent() != o.Pkg().Scope() {
					break
				}
				if names := banned[c][o.Pkg().Path()]; names != "*" && slices.Contains(strings.Fields(names), o.Name()) {
					say(n, "uses %s.%s", o.Pkg().Path(), o.Name())
				}
			}
			return true
		})
	}
	return bad
}

// callee names a called function of another package.
func callee(info *types.Info, c *ast.CallExpr) (pkg, name string) {
	fun := c.Fun
	if i, ok := fun.(*ast.IndexExpr); ok {
		fun = i.X
	}
	if s, ok := fun.(*ast.SelectorExpr); ok {
		if o := info.Uses[s.Sel]; o != nil && o.Pkg() != nil {
			return o.Pkg().Path(), o.Name()
		}
	}
	return "", ""
}

// TestPurityFinds shows that impurities finds each thing that it is for.
func TestPurityFinds(t *testing.T) {
	l, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	find := func(c class, want, src string) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.go"), []byte("package x\n"+src), 0o644); err != nil {
			t.Fatal(err)
		}
		bad := impurities(t, &listed{ImportPath: "x", Dir: dir, GoFiles: []string{"x.go"}}, c, "x", l.exports)
		if got := strings.Join(bad, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\nfound %q, want %q", src, got, want)
		}
	}
	find(pure, "go statement", "func f() { go f() }")
	find(deterministic, "go statement", "func f() { go f() }")
	find(pure, "select", "func f() { select {} }")
	find(pure, "channel", "var c chan int")
	find(deterministic, "", "var c chan int")
	find(pure, "time.Now", "import \"time\"\nvar now = time.Now")
	find(deterministic, "time.Sleep", "import t \"time\"\nfunc f() { t.Sleep(1) }")
	find(pure, "", "import \"time\"\nfunc f(a, b time.Time) bool { return a.After(b) }")
	find(pure, "imports sync", "import \"sync\"\nvar m sync.Mutex")
	find(deterministic, "", "import \"sync\"\nvar m sync.Mutex")
	find(pure, "math/rand/v2.IntN", "import \"math/rand/v2\"\nvar x = rand.IntN(3)")
	find(pure, "", "import \"math/rand/v2\"\nfunc f(r *rand.Rand) int { return r.IntN(3) }")
	find(pure, "range over a map", "type m map[int]int\nfunc f(x m) (s int) { for k := range x { s = k }; return }")
	find(pure, "", "func f(x map[int]int) (s int) {\n\t// Any sum: any order gives the same.\n\tfor k := range x { s += k }\n\treturn\n}")
	find(pure, "", "func f(x map[int]int) (s int) {\n\tfor range x { s++ }\n\treturn\n}")
	find(pure, "maps.Keys", "import \"maps\"\nfunc f(x map[int]int) { for range maps.Keys(x) {} }")
	find(pure, "", "import (\"maps\"; \"slices\")\nfunc f(x map[int]int) []int { return slices.Sorted(maps.Keys(x)) }")
}

// TestPackageDocs: every package has one package comment, and it begins as Go's do.
func TestPackageDocs(t *testing.T) {
	for _, l := range ours(t) {
		docs := 0
		for _, name := range slices.Concat(l.GoFiles, l.TestGoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(l.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if errors.Is(err, os.ErrNotExist) {
				continue // deleted since go list looked
			} else if err != nil {
				t.Error(err)
				continue
			}
			if f.Doc == nil {
				continue
			}
			docs++
			want := "Package " + l.Name + " "
			if l.Name == "main" {
				want = "Command "
			}
			if !strings.HasPrefix(f.Doc.Text(), want) {
				t.Errorf("%s/%s: the package comment does not begin with %q", l.path(), name, want)
			}
		}
		if docs != 1 && len(l.GoFiles) > 0 {
			t.Errorf("%s has %d package comments: want one, in doc.go", l.path(), docs)
		}
	}
}

// files are the paths of all files of the project, from its top, with slashes.
func files(t *testing.T) []string {
	t.Helper()
	c := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	c.Dir = top()
	out, err := c.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	all := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	systems       = strings.Fields("aix android darwin dragonfly freebsd hurd illumos ios js linux nacl netbsd openbsd plan9 solaris wasip1 windows zos")
	architectures = strings.Fields("386 amd64 arm arm64 loong64 mips mipsle mips64 mips64le ppc64 ppc64le riscv64 s390x wasm sparc64 riscv sparc ppc s390 armbe arm64be")
)

// TestFileNames: no file that Go leaves out of the build by its name unless that is meant, one file for each API key under
// Kafka's name, and no Go file that grew past what one reads at a time.
func TestFileNames(t *testing.T) {
	api := map[string]string{} // "19" → "create_topics"
	table, err := os.ReadFile(filepath.Join(top(), "testdata", "tables", "apis.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(table)), "\n")[1:] {
		cells := strings.Split(line, "\t")
		api[fmt.Sprintf("%02s", cells[0])] = snake(cells[1])
	}
	if api["19"] != "create_topics" || api["00"] != "produce" {
		t.Fatalf("table of APIs: 19 is %q, 0 is %q", api["19"], api["00"])
	}
	numbered := regexp.MustCompile(`^(\d+)_(\w+?)(_test)?\.go$`)
	for _, f := range files(t) {
		dir, base := filepath.Dir(f), filepath.Base(f)
		if !strings.HasSuffix(base, ".go") || strings.Contains(f, "testdata/") {
			continue
		}
		if base[0] == '_' || base[0] == '.' {
			t.Errorf("%s: Go does not see a file of such a name", f)
		}
		words := strings.Split(strings.TrimSuffix(strings.TrimSuffix(base, ".go"), "_test"), "_")
		if last := words[len(words)-1]; len(words) > 1 && (slices.Contains(systems, last) || slices.Contains(architectures, last)) && !slices.Contains(platformFiles, dir) {
			t.Errorf("%s: Go builds it only on %s; if that is meant, list its package in platformFiles", f, last)
		}
		body, err := os.ReadFile(filepath.Join(top(), f))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, not committed yet
		} else if err != nil {
			t.Fatal(err)
		}
		if dir == "internal/cli" && strings.HasSuffix(base, "_test.go") && !bytes.Contains(body, []byte(`"testing"`)) {
			t.Errorf("%s: Go takes it for a test, and it tests nothing", f)
		}
		if n := bytes.Count(body, []byte("\n")); n > 1000 && !strings.HasPrefix(base, "zz_generated_") {
			t.Errorf("%s has %d lines: look for a seam (a role, a phase, a format)", f, n)
		}
		if dir == "internal/api" && base[0] >= '0' && base[0] <= '9' {
			m := numbered.FindStringSubmatch(base)
			if m == nil || api[m[1]] == "" || m[2] != api[m[1]] && !strings.HasPrefix(m[2], api[m[1]]+"_") {
				t.Errorf("%s: want KEY_name.go or KEY_name_part.go as Kafka names the API, e.g. 19_%s.go", f, api["19"])
			} else if _, err := os.Stat(filepath.Join(top(), dir, m[1]+"_"+api[m[1]]+".go")); err != nil {
				t.Errorf("%s: there is no %s_%s.go, where one looks first", f, m[1], api[m[1]])
			}
		}
	}
}

func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// foreign matches paths of machines that the project was made on and hosts of package registries: neither is the same for
// whoever builds it elsewhere. (Written so that this file does not match itself.)
var foreign = regexp.MustCompile(`(?:^|[^\w.~}-])/(?:wor[k]|far[m]|roo[t]|tmp/h[w])/|proxy\.golan[g]|npmj[s]\.|repo1?\.mave[n]|mave[n]\.apache\.org/maven2|deb\.debia[n]|pyp[i]\.org|pythonhoste[d]|crate[s]\.io/api`)

// TestWords: nothing in the tree names a path of one machine or a registry's host.
func TestWords(t *testing.T) {
	for _, f := range files(t) {
		if slices.Contains([]string{".sum", ".gz"}, filepath.Ext(f)) {
			continue
		}
		body, err := os.ReadFile(filepath.Join(top(), f))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(body[:min(len(body), 8000)], 0) >= 0 {
			continue // not text
		}
		for i, line := range bytes.Split(body, []byte("\n")) {
			if m := foreign.Find(line); m != nil {
				t.Errorf("%s:%d names %q", f, i+1, m)
			}
		}
	}
	for _, bad := range []string{"cd /" + "work/main", `"/` + `root/x"`, "https://" + "pypi" + ".org/simple"} {
		if !foreign.MatchString(bad) {
			t.Errorf("%q is not found", bad)
		}
	}
	for _, good := range []string{"testdata/work/x", "{DIR}/root/", "a/work/"} {
		if foreign.MatchString(good) {
			t.Errorf("%q is found", good)
		}
	}
}
