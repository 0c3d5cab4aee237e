package replication

import (
	"slices"

	"pgregory.net/rapid"
)

// drawStream draws transactions with messages of every type.
func drawStream(t *rapid.T) (messages []encoder) {
	tables := map[uint32][]Column{}
	for i := range rapid.IntRange(1, 3).Draw(t, "transactions") {
		commit := uint64(100 * (i + 1))
		messages = append(messages, message('B').u64(commit).u64(micros(noon)).u32(rapid.Uint32().Draw(t, "xid")))
		if rapid.IntRange(0, 3).Draw(t, "origin") == 0 {
			messages = append(messages, originMessage(drawName(t)))
		}
		messages = append(messages, drawTable(t, tables))
		for range rapid.IntRange(0, 8).Draw(t, "messages") {
			messages = append(messages, drawMessage(t, tables))
		}
		messages = append(messages, message('C').u8(0).u64(commit).u64(commit+rapid.Uint64Range(1, 99).Draw(t, "end")).u64(micros(noon)))
	}
	return messages
}

func drawName(t *rapid.T) string {
	return rapid.StringMatching(`[a-zA-Zä"\. ]{0,9}`).Draw(t, "name")
}

// drawTable describes a table, perhaps one that was described before, in another way.
func drawTable(t *rapid.T, tables map[uint32][]Column) encoder {
	oid := rapid.Uint32Range(1, 4).Draw(t, "oid")
	tables[oid] = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Column {
		return Column{
			Name: drawName(t), TypeOID: rapid.Uint32().Draw(t, "type"), TypeMod: rapid.Int32().Draw(t, "mod"),
			Key: rapid.Bool().Draw(t, "key"),
		}
	}), 1, 5).Draw(t, "columns")
	m := relationMessage(oid, drawName(t), drawName(t), tables[oid]...)
	at := len(m) - len(relationMessage(oid, "", "", tables[oid]...)) + len(message('R').u32(oid).text("").text(""))
	m[at] = rapid.SampledFrom([]byte("dnfi")).Draw(t, "identity")
	return m
}

func drawMessage(t *rapid.T, tables map[uint32][]Column) encoder {
	oids := make([]uint32, 0, len(tables))
	for oid := range tables {
		oids = append(oids, oid)
	}
	slices.Sort(oids)
	oid := rapid.SampledFrom(oids).Draw(t, "table")
	row := func() []any {
		values := make([]any, 0, len(tables[oid]))
		for range tables[oid] {
			values = append(values, rapid.OneOf(
				rapid.Just[any](nil), rapid.Just[any]('u'),
				rapid.Map(rapid.String(), func(s string) any { return s }),
			).Draw(t, "value"))
		}
		return values
	}
	kind := rapid.SampledFrom([]byte("KO")).Draw(t, "kind")
	switch rapid.IntRange(0, 6).Draw(t, "type") {
	case 0:
		return insertMessage(oid, row()...)
	case 1:
		return deleteMessage(oid, kind, row()...)
	case 2:
		return message('U').u32(oid).u8('N').row(row()...)
	case 3:
		return message('U').u32(oid).u8(kind).row(row()...).u8('N').row(row()...)
	case 4:
		return truncateMessage(rapid.ByteRange(0, 3).Draw(t, "options"), rapid.SliceOfN(rapid.SampledFrom(oids), 1, 3).Draw(t, "tables")...)
	case 5:
		return message('Y').u32(rapid.Uint32().Draw(t, "type")).text(drawName(t)).text(drawName(t))
	default:
		return drawTable(t, tables)
	}
}
