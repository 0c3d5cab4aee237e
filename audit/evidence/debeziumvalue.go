package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"

	"lapse/replication"
)

// typedValues writes values as Debezium does, by their types, from the text that the server sends. Of its settings those
// that lose nothing where there is no schema: decimal.handling.mode and interval.handling.mode are string, and everything
// else is at its default (so times are numbers of milliseconds or microseconds, by their precision, and bytes are base64).
//
//	boolean, bit(1)                           true, false
//	smallint, integer, bigint, oid            a number, with all its digits
//	real, double precision                    a number; "NaN", "Infinity" and "-Infinity" as text
//	numeric, money                            text
//	bytea, bit(n), varbit                     base64; bits as a number, its lowest byte first
//	date                                      days since 1970
//	time(0…3), time                           milliseconds, microseconds of the day
//	timestamp(0…3), timestamp                 milliseconds, microseconds since 1970
//	timestamptz, timetz                       text in UTC
//	interval                                  text, P1Y2M3DT4H5M6.789S
//	an array of these, and of text and uuid   an array
//	an array of a user's type                 an array of text
//	everything else                           text
//
// Unlike Debezium it writes arrays of arrays as they are, numeric's NaN as such, and types that Debezium does not know, which it
// leaves out, as text. A value that does not have the form of its type is written as the text that it is.
type typedValues struct {
	form  TextForm
	bytes []byte // of one value
	item  []byte // of one item of an array
}

// kind is how a value is written.
type kind byte

const (
	kindText kind = iota
	kindBool
	kindInteger
	kindFloat
	kindMoney
	kindBytes
	kindBits
	kindDate
	kindTime
	kindZonedTime
	kindTimestamp
	kindInstant
	kindInterval
)

// kindOf is how values of a type of PostgreSQL's own are written, by the oid that it has in every database and version. The
// second result says that they are arrays of that.
func kindOf(oid uint32) (k kind, array bool) {
	switch oid {
	case 16, 1000:
		return kindBool, oid == 1000
	case 20, 21, 23, 26, 1016, 1005, 1007, 1028:
		return kindInteger, oid > 1000
	case 700, 701, 1021, 1022:
		return kindFloat, oid > 1000
	case 790, 791:
		return kindMoney, oid == 791
	case 17, 1001:
		return kindBytes, oid == 1001
	case 1560, 1561, 1562, 1563:
		return kindBits, oid == 1561 || oid == 1563
	case 1082, 1182:
		return kindDate, oid == 1182
	case 1083, 1183:
		return kindTime, oid == 1183
	case 1266, 1270:
		return kindZonedTime, oid == 1270
	case 1114, 1115:
		return kindTimestamp, oid == 1115
	case 1184, 1185:
		return kindInstant, oid == 1185
	case 1186, 1187:
		return kindInterval, oid == 1187
	case 1002, 1003, 1009, 1014, 1015, 1231, 2951, 1040, 775, 1041, 651, 199, 3807:
		return kindText, true // of "char", name, text, bpchar, varchar, numeric, uuid, macaddr, macaddr8, inet, cidr, json, jsonb
	default:
		return kindText, false
	}
}

// builtinOID is the oid of a type of PostgreSQL's own that a domain is made of, 0 for one that is text anyway.
func builtinOID(name string) uint32 {
	switch name {
	case "bool":
		return 16
	case "int2", "int4", "int8", "oid":
		return 20
	case "float4", "float8":
		return 701
	case "money":
		return 790
	case "bytea":
		return 17
	case "bit", "varbit":
		return 1562
	case "date":
		return 1082
	case "time":
		return 1083
	case "timetz":
		return 1266
	case "timestamp":
		return 1114
	case "timestamptz":
		return 1184
	case "interval":
		return 1186
	default:
		return 0
	}
}

// append writes a value. column is nil for what is text whatever the column's type is.
func (v *typedValues) append(dst, text []byte, column *replication.Column) []byte {
	if column == nil {
		return appendText(dst, text, v.form)
	}
	oid, mod := column.TypeOID, column.TypeMod
	if name := &column.Type; name.Name != "" {
		// A domain's column has no precision of its own (-1), and that of its type is not sent.
		if name.Schema == "" {
			oid = builtinOID(name.Name)
		} else if name.Name[0] == '_' {
			oid = 1009 // so PostgreSQL names the arrays of a user's types
		}
	}
	k, array := kindOf(oid)
	if !array {
		return v.scalar(dst, text, k, mod)
	}
	items := arrayReader{rest: text, values: v, kind: k, mod: mod}
	if out, ok := items.read(dst); ok {
		return out
	}
	return appendText(dst, text, v.form)
}

// scalar writes a value that is no array.
func (v *typedValues) scalar(dst, text []byte, k kind, mod int32) []byte {
	out, ok := v.scalarOf(dst, text, k, mod)
	if !ok {
		return appendText(dst, text, v.form)
	}
	return out
}

func (v *typedValues) scalarOf(dst, text []byte, k kind, mod int32) (out []byte, ok bool) {
	switch k {
	case kindBool:
		if ok = len(text) == 1 && (text[0] == 't' || text[0] == 'f'); ok {
			dst = appendBool(dst, text[0] == 't')
		}
		return dst, ok
	case kindInteger:
		return append(dst, text...), isNumber(text) && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, '.') < 0
	case kindFloat:
		return append(dst, text...), isNumber(text)
	case kindMoney:
		return v.money(dst, text)
	case kindBytes:
		return v.binary(dst, text)
	case kindBits:
		return v.bits(dst, text, mod)
	case kindDate:
		return appendDate(dst, text)
	case kindTime:
		return appendTimeOfDay(dst, text, mod)
	case kindZonedTime:
		return appendZonedTime(dst, text)
	case kindTimestamp:
		return appendTimestamp(dst, text, mod)
	case kindInstant:
		return appendZonedInstant(dst, text, mod)
	case kindInterval:
		return appendInterval(dst, text)
	default:
		return dst, false
	}
}

// isNumber says whether text is a number in JSON.
func isNumber(text []byte) bool {
	r := reader{rest: text}
	r.skip('-')
	if zero := r.skip('0'); !zero && r.digits() == 0 {
		return false
	}
	if r.skip('.') && r.digits() == 0 {
		return false
	}
	if r.skip('e') {
		if !r.skip('+') {
			r.skip('-')
		}
		if r.digits() == 0 {
			return false
		}
	}
	return len(r.rest) == 0
}

// money drops the sign of the currency and what separates thousands, both as in the locale C.
func (v *typedValues) money(dst, text []byte) ([]byte, bool) {
	v.bytes = v.bytes[:0]
	for _, c := range text {
		if c != '$' && c != ',' {
			v.bytes = append(v.bytes, c)
		}
	}
	return append(append(append(dst, '"'), v.bytes...), '"'), isNumber(v.bytes)
}

func (v *typedValues) binary(dst, text []byte) ([]byte, bool) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		return dst, false
	}
	var err error
	if v.bytes, err = hex.AppendDecode(v.bytes[:0], text[2:]); err != nil {
		return dst, false
	}
	return appendBase64(dst, v.bytes), true
}

// bits are those of a number whose last digit is the lowest.
func (v *typedValues) bits(dst, text []byte, mod int32) ([]byte, bool) {
	v.bytes = v.bytes[:0]
	for i := range text {
		digit := text[len(text)-1-i]
		if digit != '0' && digit != '1' {
			return dst, false
		}
		if i%8 == 0 {
			v.bytes = append(v.bytes, 0)
		}
		v.bytes[i/8] |= (digit - '0') << (i % 8)
	}
	if mod == 1 && len(text) == 1 {
		return appendBool(dst, text[0] == '1'), true
	}
	return appendBase64(dst, v.bytes), true
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}
