package schemas

import (
	"crypto/sha256"
	"encoding/hex"
)

// Fingerprint is the first half of SHA-256, in hexadecimal: enough to tell keys apart, and useless for recovering them.
func Fingerprint(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
