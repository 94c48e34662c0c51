// Package invariant asserts what must hold whatever happens. A broken invariant panics with a *Broken: the owner of the
// state decides how far the damage reaches (one partition: its replica goes offline; raft or metadata: the process exits).
package invariant

import "fmt"

// Broken is the value that Check panics with.
type Broken struct{ Text string }

func (b *Broken) Error() string { return "invariant broken: " + b.Text }

// Check panics unless cond holds. The text begins with the invariant's number in docs/ARCHITECTURE.md.
func Check(cond bool, format string, args ...any) {
	if !cond {
		panic(&Broken{fmt.Sprintf(format, args...)})
	}
}

// Recover, deferred, turns a broken invariant into an error and lets any other panic pass.
func Recover(err *error) {
	switch p := recover().(type) {
	case nil:
	case *Broken:
		*err = p
	default:
		panic(p)
	}
}
