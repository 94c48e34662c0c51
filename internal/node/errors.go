package node

// StartError is why a node could not start, as Kafka says it, and the way out.
type StartError struct {
	Class string // the exception's, java.lang.RuntimeException if ""
	Text  string
	Fatal string // what Kafka logs before it; "Exiting Kafka due to fatal exception" if ""
	Hint  string // what to do
	Err   error
}

func (e *StartError) Error() string { return e.Text }

func (e *StartError) Unwrap() error { return e.Err }
