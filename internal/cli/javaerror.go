package cli

import "errors"

// JavaError is an error as a Java tool shows it: the exception's class and its text. Error is the text alone; Line is what
// heads Java's stack trace.
type JavaError struct {
	Class string
	Text  string
	Inner *JavaError // what an ExecutionException wraps
}

func (e *JavaError) Error() string { return e.Text }

// Line is the first line of the stack trace.
func (e *JavaError) Line() string {
	if e.Text == "" {
		return e.Class
	}
	return e.Class + ": " + e.Text
}

func (e *JavaError) Unwrap() error {
	if e.Inner == nil {
		return nil
	}
	return e.Inner
}

// wrapExecution is what a Java future's get throws for err.
func wrapExecution(err *JavaError) *JavaError {
	return &JavaError{Class: "java.util.concurrent.ExecutionException", Text: err.Line(), Inner: err}
}

// javaLine is the head of the stack trace for any error.
func javaLine(err error) string {
	var j *JavaError
	if errors.As(err, &j) {
		return j.Line()
	}
	var o *OptionError
	if errors.As(err, &o) {
		return "joptsimple." + o.Class + ": " + o.Text
	}
	return err.Error()
}
