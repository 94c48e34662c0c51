package compat

// deviations are the answers and outputs in which Highwater means to differ from Kafka, each with its reason. The key is that of
// the failure that the test would report: "API/step/vN" of a request, "tools/name" of a tool's call. One that does not differ
// any more is a failure too, so that the list stays true.
var deviations = map[string]string{}

// deviates says whether a difference is meant.
func deviates(id string) bool { return software() == "highwater" && deviations[id] != "" }
