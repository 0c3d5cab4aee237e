package replication

import (
	"encoding/binary"
	"time"

	"lapse/schemas"
)

// The messages of pgoutput, written by the protocol's documentation, to be read by the decoder.

type encoder []byte

func message(kind byte) encoder { return encoder{kind} }

func (e encoder) u8(v byte) encoder     { return append(e, v) }
func (e encoder) u16(v int) encoder     { return binary.BigEndian.AppendUint16(e, uint16(v)) }
func (e encoder) u32(v uint32) encoder  { return binary.BigEndian.AppendUint32(e, v) }
func (e encoder) u64(v uint64) encoder  { return binary.BigEndian.AppendUint64(e, v) }
func (e encoder) text(s string) encoder { return append(append(e, s...), 0) }

func (e encoder) value(s string) encoder {
	return append(e.u8('t').u32(uint32(len(s))), s...)
}

func (e encoder) row(values ...any) encoder {
	e = e.u16(len(values))
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			e = e.u8('n')
		case rune:
			e = e.u8(byte(v))
		case string:
			e = e.value(v)
		}
	}
	return e
}

func micros(at time.Time) uint64 { return uint64(at.UnixMicro() - postgresEpoch) }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456000, time.UTC)

func beginMessage(commit schemas.LSN, xid uint32) encoder {
	return message('B').u64(uint64(commit)).u64(micros(noon)).u32(xid)
}

func commitMessage(commit, end schemas.LSN) encoder {
	return message('C').u8(0).u64(uint64(commit)).u64(uint64(end)).u64(micros(noon))
}

func originMessage(name string) encoder { return message('O').u64(1).text(name) }

func relationMessage(oid uint32, schema, name string, columns ...Column) encoder {
	e := message('R').u32(oid).text(schema).text(name).u8('d').u16(len(columns))
	for _, c := range columns {
		key := byte(0)
		if c.Key {
			key = 1
		}
		e = e.u8(key).text(c.Name).u32(c.TypeOID).u32(uint32(c.TypeMod))
	}
	return e
}

func deleteMessage(oid uint32, kind byte, values ...any) encoder {
	return message('D').u32(oid).u8(kind).row(values...)
}

func insertMessage(oid uint32, values ...any) encoder {
	return message('I').u32(oid).u8('N').row(values...)
}

func truncateMessage(options byte, oids ...uint32) encoder {
	e := message('T').u32(uint32(len(oids))).u8(options)
	for _, oid := range oids {
		e = e.u32(oid)
	}
	return e
}
