package schemas

import (
	"crypto/sha256"
	"encoding/hex"
)

// Fingerprint is the first half of SHA-256, in hexadecimal: enough to tell things apart by, and no use for finding out
// what they are if they are keys.
func Fingerprint(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
