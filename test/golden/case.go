package golden

import (
	"encoding/json"
	"fmt"
	"os"
)

// Case is one call of a tool with what Kafka's tool answered.
type Case struct {
	Name    string            `json:"name"`
	Argv    []string          `json:"argv"`
	Setup   [][]string        `json:"setup"`   // commands before it; see Runner.setup
	Files   map[string]string `json:"files"`   // written to {FILES}; "b64:" starts base64
	Stdin   *string           `json:"stdin"`   // nil: none
	Timeout int               `json:"timeout"` // in seconds

	Exit   Exit     `json:"exit"`
	Stdout []string `json:"stdout"` // after normalising; {USAGE} is a usage text, {TRACE} a stack trace
	Stderr []string `json:"stderr"`

	UsageOnly bool        `json:"usage_only"` // a usage text and whatever stands before it are one
	Sort      bool        `json:"sort"`       // lines are compared as a set
	Keep      string      `json:"keep"`       // only such lines of standard output are compared
	AnyOrder  bool        `json:"any_order"`  // the words of each line are compared as a set
	Log       bool        `json:"log"`        // log lines of level ERROR and FATAL matter
	Retry     int         `json:"retry"`      // so many tries, of which one must succeed
	Ignore    []string    `json:"ignore"`     // streams that are not compared
	First     int         `json:"first"`      // only so many lines of each stream are compared
	Normalise [][2]string `json:"normalise"`  // regular expression (Python's) and replacement
}

// Exit is an exit status, or "timeout" of a tool that had to be stopped.
type Exit struct {
	Status  int
	Timeout bool
}

// UnmarshalJSON reads a number or "timeout".
func (e *Exit) UnmarshalJSON(b []byte) error {
	if string(b) == `"timeout"` {
		e.Timeout = true
		return nil
	}
	return json.Unmarshal(b, &e.Status)
}

func (e Exit) String() string {
	if e.Timeout {
		return "timeout"
	}
	return fmt.Sprint(e.Status)
}

// Load reads the cases of one tool.
func Load(path string) ([]Case, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []Case
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// asks says whether the case is a question that changes nothing: it is asked again when the answer differs, since what was
// just altered may not have reached the broker that answers.
func (c *Case) asks() bool {
	for _, s := range c.Setup {
		if s[0] == "spawn" || s[0] == "cluster" {
			return false
		}
	}
	for _, a := range c.Argv {
		switch a {
		case "--describe", "--list", "describe", "list":
			return true
		}
	}
	return false
}
