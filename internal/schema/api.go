package schema

// API is what Kafka 4.4 says of one API.
type API struct {
	Key  int16
	Name string // "CreateTopics"
	// Min and Max are the versions served; Max < Min for an API that was removed. MaxUnstable is above Max where the
	// newest version is served with unstable.api.versions.enable only.
	Min, Max, MaxUnstable int16
	// Advertised is the lowest version that ApiVersions tells: Min, but 0 for Produce, because librdkafka would not talk
	// to a broker that doesn't list Produce 0 (KAFKA-18659).
	Advertised    int16
	Flexible      int16 // first flexible version of request and response, or -1
	Broker        bool  // served by a broker's listeners
	Controller    bool  // served by a controller's listeners
	ClusterAction bool  // between nodes: needs CLUSTER_ACTION
	Forwardable   bool  // a broker sends it on to the controller
}

// Removed tells whether Kafka 4.4 has no version of the API left.
func (a *API) Removed() bool { return a.Max < a.Min }

// LookupAPI is the API of key, or nil for one that Kafka 4.4 doesn't have.
func LookupAPI(key int16) *API {
	if key < 0 || key > MaxAPIKey || APIs[key].Removed() {
		return nil
	}
	return &APIs[key]
}

// RequestHeaderVersion is 2, with tagged fields, from the first flexible version on; else 1.
func (a *API) RequestHeaderVersion(version int16) int16 {
	if a.Flexible >= 0 && version >= a.Flexible {
		return 2
	}
	return 1
}

// ResponseHeaderVersion is 1, with tagged fields, from the first flexible version on; else 0. The answer to ApiVersions
// always has 0, because its client may not know better (KIP-511).
func (a *API) ResponseHeaderVersion(version int16) int16 {
	const apiVersions = 18
	if a.Flexible >= 0 && version >= a.Flexible && a.Key != apiVersions {
		return 1
	}
	return 0
}
