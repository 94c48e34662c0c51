//go:build invariants

package invariant

// Dear tells whether checks that cost more than the work that they guard are compiled in (build tag "invariants").
const Dear = true
