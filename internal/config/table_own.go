package config

// ownBrokerKeys are the keys that Kafka does not have. All begin with "highwater.", which no Kafka key does, so that a
// file with them can be handed back to Kafka, which passes over what it does not know.
var ownBrokerKeys = []*Key{
	{Name: "highwater.compression.validation", Type: String, Default: "full", Check: choice("full", "header"), Importance: Medium,
		Update: ReadOnly, Ours: true,
		Doc: "How much of a compressed batch is checked when it is produced: full reads every record, as Kafka does; header " +
			"checks the batch header and the CRC and trusts the producer for the rest."},
}
