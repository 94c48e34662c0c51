package record

// Places in a message of magic 0 and 1, which has its CRC before the magic. Magic 1 has a timestamp of 8 bytes before the key.
const (
	posLegacyCRC        = 12
	posLegacyAttributes = 17
	posLegacyTimestamp  = 18 // magic 1 only

	legacyOverheadV1 = 22 // CRC, magic, attributes, timestamp, two lengths
)
