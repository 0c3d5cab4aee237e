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
	HashKey    string      // fingerprint; empty in records of former versions, as the next
	PublicKey  string      // what the log's checkpoints verify with
	RowsKeys   []RowsKey
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
	if c.PublicKey != "" {
		b = appendText(append(b, `,{"use":"hash","fingerprint":`...), c.HashKey, UTF8Text)
		b = append(appendText(append(b, `},{"use":"log","public_key":`...), c.PublicKey, UTF8Text), '}')
	}
	for _, key := range c.RowsKeys {
		if key.Fingerprint == "" {
			continue // destroyed before this log began, which has no commitments under it
		}
		b = appendText(append(b, `,{"use":"rows","epoch":`...), string(key.Epoch), UTF8Text)
		b = append(appendText(append(b, `,"fingerprint":`...), key.Fingerprint, UTF8Text), '}')
	}
	return append(b, ']')
}

func (c *OriginContent) parse(record []byte, _ TextForm) (err error) {
	var j struct {
		Slot       string `json:"slot"`
		Consistent string `json:"consistent_point"`
		Keys       []struct {
			Use         string        `json:"use"`
			Fingerprint string        `json:"fingerprint"`
			PublicKey   string        `json:"public_key"`
			Epoch       schemas.Epoch `json:"epoch"`
		} `json:"keys"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.Slot = j.Slot
	for _, key := range j.Keys {
		switch key.Use {
		case "tag":
			c.Keys = append(c.Keys, key.Fingerprint)
		case "hash":
			c.HashKey = key.Fingerprint
		case "log":
			c.PublicKey = key.PublicKey
		case "rows":
			c.RowsKeys = append(c.RowsKeys, RowsKey{key.Epoch, key.Fingerprint})
		}
	}
	c.Consistent, err = optionalLSN(j.Consistent)
	return err
}
