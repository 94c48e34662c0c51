package compat

import (
	"encoding/json"
	"slices"
	"strings"
)

// deviations are the answers and outputs in which Highwater means to differ from Kafka, each with its reason. The key is that of
// the failure that the test would report: "API/step/vN" of a request, "tools/name" of a tool's call. One that does not differ
// any more is a failure too, so that the list stays true.
var deviations = map[string]string{
	"tools/dump offset index": "the newest entries of an active segment's indexes are in memory until there are many or the segment is flushed; a crash makes them anew",
	"tools/a group's":         "kafka-configs asks for the groups first, and ListGroups is the group coordinator's, which is not there yet",
}

// deviates says whether a difference is meant.
func deviates(id string) bool { return software() == "highwater" && deviations[id] != "" }

// rule is a difference that is meant wherever it occurs. apply makes the two answers alike in it, and says whether they differed. A
// rule that nothing in its file needs is a failure.
type rule struct {
	why   string
	file  string
	key   int16
	apply func(want, got map[string]any) bool
}

var rules = []rule{
	{
		why:  "Kafka answers UNKNOWN_SERVER_ERROR to batches on which its code falls into an exception that it did not foresee; we say what is wrong with them",
		file: "batches.jsonl.gz", key: 0, apply: foreseen,
	},
	{why: "as above", file: "requests.jsonl.gz", key: 0, apply: foreseen},
	{
		why:  "configs of our own are described like the others",
		file: "requests.jsonl.gz", key: 32,
		apply: func(_, got map[string]any) (used bool) {
			for _, r := range list(got["Resources"]) {
				r := r.(map[string]any)
				if r["Configs"] == nil {
					continue
				}
				r["Configs"] = slices.DeleteFunc(list(r["Configs"]), func(c any) bool {
					ours := strings.HasPrefix(c.(map[string]any)["Name"].(string), "highwater.")
					used = used || ours
					return ours
				})
			}
			return used
		},
	},
}

// foreseen replaces Kafka's UNKNOWN_SERVER_ERROR of a Produce by our CORRUPT_MESSAGE or INVALID_RECORD.
func foreseen(want, got map[string]any) (used bool) {
	partition := func(answer map[string]any) map[string]any {
		for _, t := range list(answer["Topics"]) {
			for _, p := range list(t.(map[string]any)["Partitions"]) {
				return p.(map[string]any)
			}
		}
		return map[string]any{}
	}
	w, g := partition(want), partition(got)
	if w["ErrorCode"] != -1.0 || g["ErrorCode"] != 2.0 && g["ErrorCode"] != 87.0 {
		return false
	}
	for _, field := range []string{"ErrorCode", "ErrorMessage", "LogStartOffset"} {
		w[field] = g[field]
	}
	return true
}

func list(x any) []any { l, _ := x.([]any); return l }

// meant applies the rules to two answers of one API.
func (r *recording) meant(key int16, want, got json.RawMessage) (json.RawMessage, json.RawMessage) {
	if software() != "highwater" {
		return want, got
	}
	for i := range rules {
		if rules[i].key != key || rules[i].file != r.name {
			continue
		}
		var w, g map[string]any
		if json.Unmarshal(want, &w) != nil || json.Unmarshal(got, &g) != nil || !rules[i].apply(w, g) {
			continue
		}
		r.used[i] = true
		want, _ = json.Marshal(w)
		got, _ = json.Marshal(g)
	}
	return want, got
}

// unused are the rules that nothing needed.
func (r *recording) unused() (out []string) {
	for i := range rules {
		if software() == "highwater" && rules[i].file == r.name && !r.used[i] {
			out = append(out, rules[i].why)
		}
	}
	return out
}
