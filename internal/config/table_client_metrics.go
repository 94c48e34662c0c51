package config

// clientMetricsKeys are the keys of a client metrics subscription.
var clientMetricsKeys = []*Key{
	{Name: "metrics", Type: List, Check: list(true, false), Importance: Medium,
		Doc: "Prefixes of the metrics to push; * is all, nothing is none."},
	{Name: "interval.ms", Type: Int, Default: "300000", Importance: Medium,
		Doc: "How often clients push."},
	{Name: "match", Type: List, Check: list(true, false), Importance: Medium,
		Doc: "Which clients: name=pattern pairs."},
}
