package kafka

import "lapse/audit/store"

// What this package shares with other keepers of topics.
type (
	// Stored is a record and its offset in the partition.
	Stored = store.Record
	// Offsets are the bounds of a partition.
	Offsets = store.Offsets
	// End is where the records end that a publisher has acknowledged in a partition: see store.End.
	End = store.End
	// MissingTopicError says that a topic is not there, or that the login may not see it.
	MissingTopicError = store.MissingError
	// OffsetError says that the offset asked for is not in the partition.
	OffsetError = store.OffsetError
)

// NoEnd is the upper bound of a Reader that waits for what is still to come.
const NoEnd = store.NoEnd

var _ store.Client = (*Client)(nil)
