package schemas

// PolicyID is a policy's number in the catalog. Numbers are never reused.
type PolicyID int32

// PolicyName is a policy's name in its file, in events and in metrics.
type PolicyName string

// PolicyVersion counts a policy's versions. A version never changes: every edit of the policy file makes the next.
type PolicyVersion int32

// XID is a transaction's 64-bit id. The write-ahead log carries its low half.
type XID uint64

// HoldVersion counts the changes of the holds in force.
type HoldVersion int64

// HoldID is the number of a legal hold. Numbers are never reused.
type HoldID int32
