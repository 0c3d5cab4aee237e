package evidence

import (
	"encoding/json"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// OriginContent is the log's first record.
type OriginContent struct {
	Slot       string
	Consistent schemas.LSN // where the slot begins
	Keys       []string    // fingerprints of the tag keys: the keys themselves never leave the process
	At         time.Time
}

// Kind is KindOrigin.
func (*OriginContent) Kind() Kind                               { return KindOrigin }
func (c *OriginContent) written() time.Time                     { return c.At }
func (*OriginContent) read() (*Heartbeat, replication.Ancestry) { return nil, nil }

func (c *OriginContent) append(b []byte, _ TextForm) []byte {
	b = appendText(append(b, `,"slot":`...), c.Slot, UTF8Text)
	b = append(appendLSN(append(b, `,"consistent_point":`...), c.Consistent), `,"keys":[`...)
	for i, key := range c.Keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(append(b, `{"use":"tag","fingerprint":`...), key, UTF8Text), '}')
	}
	return append(b, ']')
}

func (c *OriginContent) parse(record []byte, _ TextForm) (err error) {
	var j struct {
		Slot       string `json:"slot"`
		Consistent string `json:"consistent_point"`
		Keys       []struct {
			Use         string `json:"use"`
			Fingerprint string `json:"fingerprint"`
		} `json:"keys"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.Slot = j.Slot
	for _, key := range j.Keys {
		if key.Use == "tag" {
			c.Keys = append(c.Keys, key.Fingerprint)
		}
	}
	c.Consistent, err = optionalLSN(j.Consistent)
	return err
}
