package record

// Message is, in magic 0 and 1, the bytes of the message that Next read last: the batch itself or one message out of the
// compressed set. It has what a Record lacks, a checksum of its own. It is nil in magic 2 and valid as long as Record's result.
func (r *Reader) Message() Batch { return r.message }
