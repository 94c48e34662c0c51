package golden

import (
	"regexp"
	"slices"
	"sort"
	"strings"
)

var (
	logLine    = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d+\] (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) `)
	logMore    = regexp.MustCompile(`^(\s|java\.|org\.apache\.kafka|kafka\.|$)`)
	logger     = regexp.MustCompile(` \([\w.$]+\)$`)
	traceLine  = regexp.MustCompile(`^(\tat |\t\.\.\. \d+ |\tSuppressed: |Caused by: )`)
	noiseLine  = regexp.MustCompile(`^(SLF4J|log4j:|WARNING: (An illegal|Please|Use|All|A Java agent|sun\.|A terminally)|OpenJDK )`)
	optionHead = regexp.MustCompile(`^Option( \(\* = required\))?\s+Description\s*$`)
	errorLine  = regexp.MustCompile(`^\S+:\s+error:\s`)
	javaClass  = regexp.MustCompile(`^(Exception in thread "main" )?(java|javax|org\.apache\.kafka|kafka|joptsimple|com\.fasterxml|net\.sourceforge)\.[\w.$]+(Exception|Error)(: |$)`)
	blanks     = regexp.MustCompile(`\s+`)
	wordBreak  = regexp.MustCompile(`[\s,\[\]]+`)
)

// tidy drops log lines (with log it keeps those of level ERROR and FATAL, without time and logger) and stack traces, and cuts
// usage texts.
func tidy(text string, log bool) []string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	var out []string
	inLog, level := false, ""
	for i, l := range lines {
		if m := logLine.FindStringSubmatch(l); m != nil {
			level = m[1]
			inLog = !(log && (m[1] == "ERROR" || m[1] == "FATAL"))
			if !inLog {
				out = append(out, m[1]+" "+logger.ReplaceAllString(l[len(m[0]):], ""))
			}
			continue
		}
		if traceLine.MatchString(l) {
			if !inLog && (len(out) == 0 || out[len(out)-1] != "{TRACE}") {
				out = append(out, "{TRACE}")
			}
			continue
		}
		// After an error its exception belongs to the log; after a warning only if frames follow, or else it is what the tool says.
		if inLog && logMore.MatchString(l) && (level == "ERROR" || level == "FATAL" || strings.TrimLeft(l, " \t") != l || l == "" || i+1 < len(lines) && traceLine.MatchString(lines[i+1])) {
			continue
		}
		inLog = false
		if noiseLine.MatchString(l) {
			continue
		}
		if strings.TrimSpace(l) == "" {
			l = ""
		}
		out = append(out, l)
	}
	return cutUsage(out)
}

// cutUsage puts {USAGE} for a usage text: joptsimple's ends the output, argparse4j's ends at its error line.
func cutUsage(lines []string) []string {
	var out []string
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		if optionHead.MatchString(l) {
			return append(out, "{USAGE}")
		}
		if strings.HasPrefix(l, "usage: ") {
			out = append(out, "{USAGE}")
			for i+1 < len(lines) && !errorLine.MatchString(lines[i+1]) {
				i++
			}
			continue
		}
		out = append(out, l)
	}
	return out
}

// onlyUsage makes a usage text and the sentence before it one.
func onlyUsage(lines []string) []string {
	if !slices.Contains(lines, "{USAGE}") {
		return lines
	}
	for _, l := range lines {
		if strings.Contains(l, "error:") {
			return lines
		}
	}
	return []string{"{USAGE}"}
}

// lenient is what another implementation can be held to: no Java class names, no traces, no blank lines, any run of blanks
// is one, a line that only repeats the one before doesn't count.
func lenient(lines []string) []string {
	var out []string
	for _, l := range lines {
		l = strings.TrimSpace(blanks.ReplaceAllString(javaClass.ReplaceAllString(l, ""), " "))
		if l != "" && l != "{TRACE}" && (len(out) == 0 || out[len(out)-1] != l) {
			out = append(out, l)
		}
	}
	return out
}

// answer is what is compared.
type answer struct {
	exit           Exit
	stdout, stderr []string // nil: not compared
}

// shaped applies what a case says about comparing.
func (c *Case) shaped(exit Exit, stdout, stderr []string) (answer, error) {
	stdout, stderr = slices.Clone(stdout), slices.Clone(stderr)
	if c.UsageOnly {
		stdout, stderr = onlyUsage(stdout), onlyUsage(stderr)
	}
	if c.Keep != "" {
		re, err := regexp.Compile(c.Keep)
		if err != nil {
			return answer{}, err
		}
		stdout = slices.DeleteFunc(stdout, func(l string) bool { return !re.MatchString(l) })
	}
	for _, s := range []*[]string{&stdout, &stderr} {
		if c.Sort {
			sort.Strings(*s)
		}
		if c.AnyOrder {
			for i, l := range *s {
				words := wordBreak.Split(l, -1)
				sort.Strings(words)
				(*s)[i] = strings.Join(words, " ")
			}
		}
		if c.First > 0 && len(*s) > c.First {
			*s = (*s)[:c.First]
		}
		if *s = lenient(*s); *s == nil {
			*s = []string{}
		}
	}
	a := answer{exit, stdout, stderr}
	if slices.Contains(c.Ignore, "stdout") {
		a.stdout = nil
	}
	if slices.Contains(c.Ignore, "stderr") {
		a.stderr = nil
	}
	return a, nil
}

// rule is one replacement of a case. Its regular expressions are Python's; Go's lack look-around, of which the cases use one
// form only: a class that must stand neither before nor after.
type rule struct {
	re     *regexp.Regexp
	beside *regexp.Regexp // what may not stand next to a match
	with   string
}

var (
	lookAround = regexp.MustCompile(`^\(\?<!(\[[^\]]+\])\)(.*)\(\?!(\[[^\]]+\])\)$`)
	backRef    = regexp.MustCompile(`\\(\d)`)
)

func newRule(pattern, replacement string) (rule, error) {
	r := rule{with: backRef.ReplaceAllString(strings.ReplaceAll(replacement, "$", "$$"), "$${$1}")}
	var err error
	if m := lookAround.FindStringSubmatch(pattern); m != nil {
		pattern = m[2]
		if r.beside, err = regexp.Compile("^" + m[1]); err != nil {
			return r, err
		}
	}
	r.re, err = regexp.Compile(pattern)
	return r, err
}

func (r rule) apply(l string) string {
	if r.beside == nil {
		return r.re.ReplaceAllString(l, r.with)
	}
	var out strings.Builder
	for at := 0; ; {
		m := r.re.FindStringIndex(l[at:])
		if m == nil {
			return out.String() + l[at:]
		}
		from, to := at+m[0], at+m[1]
		if from > 0 && r.beside.MatchString(l[from-1:]) || to < len(l) && r.beside.MatchString(l[to:]) || from == to {
			out.WriteString(l[at : from+1]) // no match here; the next may begin one further
			at = from + 1
			continue
		}
		out.WriteString(l[at:from])
		out.WriteString(r.with)
		at = to
	}
}

// rules compiles the case's replacements.
func (c *Case) rules() ([]rule, error) {
	var out []rule
	for _, p := range c.Normalise {
		r, err := newRule(p[0], p[1])
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func normalised(lines []string, rules []rule) []string {
	var out []string
	for _, l := range lines {
		for _, r := range rules {
			l = r.apply(l)
		}
		out = append(out, l)
	}
	return out
}
