package cli

import (
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/highwater/highwater/internal/kerr"
)

// JavaError is an error as a Java tool shows it: the exception's class and its text. Error is the text alone; Line is what
// heads Java's stack trace.
type JavaError struct {
	Class string
	Text  string
	Code  int16      // Kafka's error code, if it came from a broker
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

// exception is a JavaError of one of Kafka's own classes.
func exception(class, text string) *JavaError {
	return &JavaError{Class: "org.apache.kafka.common.errors." + class, Text: text}
}

// codeError is the exception of an error code; message is what the broker said, nil or "" means the code's own text. It is
// nil for code 0.
func codeError(code int16, message *string) *JavaError {
	if code == 0 {
		return nil
	}
	class := classOf(code)
	text := ""
	if message != nil {
		text = *message
	}
	if text == "" {
		var e *kerr.Error
		if errors.As(kerr.ForCode(code), &e) {
			text = e.Message()
		}
	}
	err := exception(class, text)
	err.Code = code
	return err
}

var classes = sync.OnceValue(func() map[int16]string {
	m := make(map[int16]string)
	for _, l := range strings.Split(strings.TrimSpace(errorClasses), "\n") {
		c, name, _ := strings.Cut(l, "\t")
		if n, err := strconv.ParseInt(c, 10, 16); err == nil {
			m[int16(n)] = name
		}
	}
	return m
})

func classOf(code int16) string {
	if c, ok := classes()[code]; ok && c != "-" {
		return c
	}
	return "UnknownServerException"
}

// executionError is what a Java future's get throws for err.
func executionError(err error) *JavaError {
	var j *JavaError
	if !errors.As(err, &j) {
		j = &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: err.Error()}
	}
	return &JavaError{Class: "java.util.concurrent.ExecutionException", Text: j.Line(), Inner: j}
}

// cause is what an ExecutionException wraps, or the error itself.
func cause(err error) error {
	var j *JavaError
	if errors.As(err, &j) && j.Inner != nil {
		return j.Inner
	}
	return err
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

// illegalArgument is Java's IllegalArgumentException.
func illegalArgument(text string) *JavaError {
	return &JavaError{Class: "java.lang.IllegalArgumentException", Text: text}
}

// printTrace writes what is left of a Java stack trace without its frames: the head, and what caused it.
func printTrace(e *Env, err error) {
	e.Errorf("%s", javaLine(err))
	printCauses(e, err)
}

// printCauses writes the causes of an exception, where the head doesn't say them already.
func printCauses(e *Env, err error) {
	var j *JavaError
	if !errors.As(err, &j) {
		return
	}
	for in := j.Inner; in != nil; j, in = in, in.Inner {
		if !strings.Contains(j.Text, in.Text) {
			e.Errorf("Caused by: %s", in.Line())
		}
	}
}
