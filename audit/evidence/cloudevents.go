package evidence

import (
	"time"
	"unicode/utf8"

	"lapse/replication"
	"lapse/schemas"
)

const (
	cloudEventsType    = "lapse."                   // what the type of every event begins with; lapse-op follows
	cloudEventsSource  = "urn:lapse:database:"      // system identifier and database oid follow
	cloudEventsSchema  = "urn:lapse:schema:event:1" // of data: schemas/event.schema.json
	cloudEventsContent = "application/cloudevents+json; charset=UTF-8"
)

// cloudEventsFormat writes CloudEvents 1.0 in structured mode. The data is the event as in the default format, so that
// what it says is said in one shape. What routers of events filter by, which see no data, is in attributes: type, subject,
// and the extensions lapsecause and lapsepolicy; sequence is their order. The attributes are no headers, though Kafka's binding
// allows it: the SDK for Python takes an event with ce_ headers for one in binary mode, and the envelope for its data.
type cloudEventsFormat struct {
	source *Source
	data   *spannerFormat
	header schemas.Header // the only one
	alike  cloudEvent     // of the events that Alike was called for
	marker cloudEvent
}

func newCloudEventsFormat(source *Source) Format {
	return &cloudEventsFormat{
		source: source, data: &spannerFormat{source: source, form: TextFormOf(source.Encoding)},
		header: schemas.Header{Key: "content-type", Value: []byte(cloudEventsContent)},
	}
}

// Alike writes what the events have in common.
func (f *cloudEventsFormat) Alike(e *Event) {
	f.data.Alike(e)
	f.alike.begin(f.source, e.Op, e.Tx.CommitTime)
	if subject := appendAttribute(nil, e.Table, f.data.form); len(subject) > 0 {
		f.alike.attribute("subject", subject)
	}
	f.alike.attribute("lapsecause", []byte(e.Cause.String()))
	if e.Claim != nil {
		f.alike.attribute("lapsepolicy", appendAttribute(nil, string(e.Claim.Policy), f.data.form))
	}
	f.alike.at = e.Tx.Position(0)
}

// AppendKeys writes them as the data has them.
func (f *cloudEventsFormat) AppendKeys(dst []byte, keys []Key) []byte {
	return f.data.AppendKeys(dst, keys)
}

// AppendEvent puts id, sequence and data with it.
func (f *cloudEventsFormat) AppendEvent(dst []byte, e *Event, keys *EventKeys) []byte {
	f.alike.at.Ordinal = e.Ordinal
	dst = f.alike.append(dst, f.source)
	return append(f.data.AppendEvent(dst, e, keys), '}')
}

// AppendMarker writes a marker.
func (f *cloudEventsFormat) AppendMarker(dst []byte, m *Marker) []byte {
	f.marker.begin(f.source, m.Op, m.Time)
	f.marker.at = m.At
	dst = f.marker.append(dst, f.source)
	return append(f.data.AppendMarker(dst, m), '}')
}

// AppendHeaders adds the content type, which says that the mode is structured.
func (f *cloudEventsFormat) AppendHeaders(dst []schemas.Header) []schemas.Header {
	return append(dst, f.header)
}

// cloudEvent is the attributes of events that are alike.
type cloudEvent struct {
	json []byte // attributes but id and sequence, each with a comma before it
	at   replication.Position
}

func (c *cloudEvent) begin(source *Source, op Op, at time.Time) {
	c.json = c.json[:0]
	c.attribute("specversion", []byte("1.0"))
	c.attribute("type", []byte(cloudEventsType+op.String()))
	id := append(appendUint([]byte(cloudEventsSource), source.SystemIdentifier), ':')
	c.attribute("source", appendUint(id, uint64(source.DatabaseOID)))
	instant := appendInstant(nil, at)
	c.attribute("time", instant[1:len(instant)-1])
	c.attribute("dataschema", []byte(cloudEventsSchema))
	c.json = append(c.json, `,"datacontenttype":"application/json"`...)
}

// attribute adds one. In its value everything is UTF-8.
func (c *cloudEvent) attribute(name string, value []byte) {
	c.json = appendText(append(append(append(c.json, `,"`...), name...), `":`...), value, UTF8Text)
}

// append writes the attributes, up to the value of data.
func (c *cloudEvent) append(dst []byte, source *Source) []byte {
	dst = appendEventID(append(dst, `{"id":"`...), source, c.at)
	dst = appendSequence(append(dst, `","sequence":"`...), c.at)
	return append(append(append(dst, '"'), c.json...), `,"data":`...)
}

// appendSequence writes a position so that text sorts as positions do.
func appendSequence(dst []byte, at replication.Position) []byte {
	dst = append(appendHex(dst, uint64(at.History), 8), '/')
	dst = append(appendHex(dst, uint64(at.Timeline), 8), '/')
	dst = append(appendHex(dst, uint64(at.Commit), 16), '/')
	return appendHex(dst, uint64(at.Ordinal), 8)
}

// appendAttribute writes text as in an attribute: what CloudEvents forbids there (control characters and what is no
// character), and the percent sign, is percent-encoded. Bytes that are not UTF-8 become what appendText makes of them.
func appendAttribute(dst []byte, s string, form TextForm) []byte {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch raw := r == utf8.RuneError && size == 1 || form == RawText && r >= rawByte+0x80 && r <= rawByte+0xFF; {
		case raw:
			for _, b := range []byte(s[i : i+size]) {
				dst = utf8.AppendRune(dst, rawByte+rune(b))
			}
		case r < ' ' || r == '%' || r >= 0x7F && r <= 0x9F || r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE:
			for _, b := range []byte(s[i : i+size]) {
				dst = append(dst, '%', upperHex[b>>4], upperHex[b&15])
			}
		default:
			dst = append(dst, s[i:i+size]...)
		}
		i += size
	}
	return dst
}
