// Package kerr has Kafka's error codes as Go errors. Each code is one variable; With adds a text for one occasion and
// keeps the code, so errors.Is(err, kerr.NotLeaderOrFollower) holds for both. Handlers turn an error into its code in one
// place, Code. The default texts are franz-go's, which are Kafka's.
package kerr

import (
	"errors"
	"fmt"

	fkerr "github.com/twmb/franz-go/pkg/kerr"
)

// Error is an error that a client understands.
type Error struct {
	Code      int16
	Name      string // as in the protocol, NOT_LEADER_OR_FOLLOWER
	Retriable bool
	Text      string // what this occasion adds, or "": then Message gives the code's own text
}

var byCode = make(map[int16]*Error)

func define(code int16, name string, retriable bool) *Error {
	e := &Error{Code: code, Name: name, Retriable: retriable}
	byCode[code] = e
	return e
}

// With is the same error with a text of its own.
func (e *Error) With(format string, args ...any) *Error {
	c := *e
	c.Text = fmt.Sprintf(format, args...)
	return &c
}

// Message is the text for the client: the occasion's or, without one, the code's.
func (e *Error) Message() string {
	if e.Text != "" {
		return e.Text
	}
	if f := fkerr.TypedErrorForCode(e.Code); f != nil {
		return f.Description
	}
	return e.Name
}

func (e *Error) Error() string { return e.Name + ": " + e.Message() }

// Is makes errors.Is compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// ForCode is the error of a code: nil for 0, UnknownServerError for one that Kafka 4.4 doesn't know.
func ForCode(code int16) error {
	if code == 0 {
		return nil
	}
	if e, ok := byCode[code]; ok {
		return e
	}
	return UnknownServerError
}

// Code is the code of err: 0 for nil, UNKNOWN_SERVER_ERROR for what is no Kafka error. The caller logs the latter.
func Code(err error) int16 {
	if err == nil {
		return 0
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return UnknownServerError.Code
}

// Message is the text that goes with Code(err): nil for nil.
func Message(err error) *string {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		m := e.Message()
		return &m
	}
	m := UnknownServerError.Message()
	return &m
}
