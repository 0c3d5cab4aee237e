package evidence

import (
	"encoding/hex"
	"time"

	"github.com/google/uuid"

	"lapse/schemas"
)

// appendClaim writes the members about the policy under which a batch deleted.
func appendClaim(dst []byte, c *schemas.Claim, form TextForm) []byte {
	dst = appendText(append(dst, `"policy":`...), string(c.Policy), form)
	dst = appendInt(append(dst, `,"policy_version":`...), int64(c.PolicyVersion))
	dst = appendUUID(append(dst, `,"run":`...), c.Run)
	dst = appendUUID(append(dst, `,"batch":`...), c.Batch)
	dst = appendInstant(append(dst, `,"cutoff":`...), c.Cutoff)
	return appendInt(append(dst, `,"hold_version":`...), int64(c.HoldVersion))
}

// claimJSON is the output of appendClaim, with further members of log records.
type claimJSON struct {
	Policy      string    `json:"policy"`
	Version     int32     `json:"policy_version"`
	Run         uuid.UUID `json:"run"`
	Batch       uuid.UUID `json:"batch"`
	Cutoff      time.Time `json:"cutoff"`
	HoldVersion int64     `json:"hold_version"`
	Target      uint32    `json:"target"`
	Functions   string    `json:"functions"`
}

func (j *claimJSON) claim(form TextForm) *schemas.Claim {
	c := &schemas.Claim{
		Policy: schemas.PolicyName(form.decode(j.Policy)), PolicyVersion: schemas.PolicyVersion(j.Version), Run: j.Run, Batch: j.Batch,
		Cutoff: j.Cutoff, HoldVersion: schemas.HoldVersion(j.HoldVersion), Target: j.Target,
	}
	functions, _ := hex.DecodeString(j.Functions) // zero if the record does not have it
	copy(c.Functions[:], functions)
	return c
}
