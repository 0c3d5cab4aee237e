package evidence

import (
	"time"

	"lapse/schemas"
)

// OriginContent is the log's first record. The keys themselves never leave the process.
type OriginContent struct {
	Slot       string
	Consistent schemas.LSN // where the slot begins
	Keys       []schemas.Key
	At         time.Time
}

// Kind is KindOrigin.
func (*OriginContent) Kind() Kind           { return KindOrigin }
func (c *OriginContent) written() time.Time { return c.At }
func (*OriginContent) read() *Heartbeat     { return nil }

func (c *OriginContent) append(b []byte, _ TextForm) []byte {
	b = appendText(append(b, `,"slot":`...), c.Slot, UTF8Text)
	b = append(appendLSN(append(b, `,"consistent_point":`...), c.Consistent), `,"keys":[`...)
	for i, key := range c.Keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(append(b, `{"use":"tag","fingerprint":`...), schemas.Fingerprint(key), UTF8Text), '}')
	}
	return append(b, ']')
}

// RouteContent is the record of a route, which is in force for all transactions that commit at or above what the record
// reaches.
type RouteContent struct {
	Route *Route
	At    time.Time
}

// Kind is KindRoute.
func (*RouteContent) Kind() Kind           { return KindRoute }
func (c *RouteContent) written() time.Time { return c.At }
func (*RouteContent) read() *Heartbeat     { return nil }

func (c *RouteContent) append(b []byte, _ TextForm) []byte {
	return c.Route.appendRouting(append(b, `,"routing":`...))
}
