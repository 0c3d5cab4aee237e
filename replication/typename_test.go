package replication

import "testing"

// The server names types before the relation that has them, each time that it describes it.
func TestAColumnKnowsTheNameOfAUsersTypeAndOfNoOther(t *testing.T) {
	t.Parallel()
	d := testDecoder()
	column := func(oid uint32) Column { return Column{Name: "c", TypeOID: oid, TypeMod: -1, Key: true} }
	typeMessage := func(oid uint32, schema, name string) encoder { return message('Y').u32(oid).text(schema).text(name) }
	for i, step := range []struct {
		message encoder
		want    []TypeName // of the relation that it describes
	}{
		{beginMessage(100, 7), nil},
		{typeMessage(16400, "app", "mood"), nil},
		{typeMessage(16401, "", "int4"), nil}, // a domain
		{relationMessage(1, "app", "a", column(16400), column(23), column(16401)), []TypeName{{"app", "mood"}, {}, {"", "int4"}}},
		{relationMessage(2, "app", "b", column(23)), []TypeName{{}}},
		{typeMessage(16400, "app", "temper"), nil}, // it was renamed
		{relationMessage(1, "app", "a", column(16400)), []TypeName{{"app", "temper"}}},
	} {
		if m, err := d.decode(step.message); m != nil || err != nil {
			t.Fatalf("step %d: %v, %v", i, m, err)
		}
		for n, want := range step.want {
			relation := d.relations[uint32(step.message[4])]
			if got := relation.Columns[n].Type; got != want {
				t.Errorf("step %d: column %d has type %v, want %v", i, n, got, want)
			}
		}
	}
	if len(d.types) != 0 {
		t.Errorf("%d names are kept that no relation needs", len(d.types))
	}
}
