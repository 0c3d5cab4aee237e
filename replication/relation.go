package replication

// maxColumns is PostgreSQL's MaxHeapAttributeNumber. Only a damaged message claims more.
const maxColumns = 1600

func (d *decoder) relation(c *cursor) error {
	rel := &Relation{OID: c.uint32(), Schema: string(c.text()), Name: string(c.text()), ReplicaIdentity: c.byte()}
	if rel.Schema == "" {
		rel.Schema = "pg_catalog" // which pgoutput leaves out
	}
	count := int(c.uint16())
	if count > maxColumns {
		return errColumns
	}
	rel.Columns = make([]Column, 0, count)
	for range count {
		flags := c.byte()
		if flags > 1 {
			return errFlags
		}
		column := Column{Name: string(c.text()), TypeOID: c.uint32(), TypeMod: int32(c.uint32()), Key: flags == 1}
		column.Type = d.types[column.TypeOID]
		rel.Columns = append(rel.Columns, column)
		if c.short {
			return errShort
		}
	}
	if c.short {
		return errShort
	}
	clear(d.types) // the server names them before each relation that has them
	d.relations[rel.OID] = rel
	d.last = nil
	return nil
}

func (d *decoder) find(oid uint32) (*Relation, error) {
	if d.last != nil && d.last.OID == oid {
		return d.last, nil
	}
	rel, ok := d.relations[oid]
	if !ok {
		return nil, errNoRelation
	}
	d.last = rel
	return rel, nil
}

// Relation is a table as the server described it before the present change. A later description, after ALTER TABLE or a rename, is another Relation
// with the same OID. For a row of a partition it is the partition.
type Relation struct {
	OID             uint32
	Schema          string
	Name            string
	ReplicaIdentity byte // pg_class.relreplident: d, n, f or i
	Columns         []Column
}

// Column is one column of a Relation, in the table's order.
type Column struct {
	Name    string
	TypeOID uint32
	TypeMod int32
	Type    TypeName // of a type that is not PostgreSQL's own; else zero
	Key     bool     // part of the replica identity
}

// TypeName is the name of a column's type; for a domain, of the type under it. Schema is empty for pg_catalog.
type TypeName struct{ Schema, Name string }
