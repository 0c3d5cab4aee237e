package importer

import "context"

// Source is a system that lets rows expire.
type Source struct {
	Name    string
	Catalog func(ctx context.Context, s *Server) ([]Item, error)              // reads a database; nil if the source has no catalog in PostgreSQL
	Text    func(ctx context.Context, s *Server, text string) ([]Item, error) // reads a text
	Parses  bool                                                              // Text needs a server that has the tables; otherwise s is nil
}

// Sources lists all sources.
func Sources() []Source {
	return []Source{
		{Name: "pg_cron", Catalog: cronCatalog, Text: cronText, Parses: true},
		{Name: "pg_ttl_index", Catalog: ttlIndexCatalog, Text: ttlIndexText, Parses: true},
		{Name: "pg_partman", Catalog: partmanCatalog, Text: partmanText, Parses: true},
		{Name: "timescaledb", Catalog: timescaleCatalog, Text: timescaleText},
		{Name: "cockroach", Text: cockroachText},
		{Name: "tidb", Text: tidbText},
		{Name: "spanner", Text: spannerText},
		{Name: "mongodb", Text: mongoText},
		{Name: "dynamodb", Text: dynamoText},
	}
}

// Names returns the sources' names.
func Names() []string {
	var names []string
	for _, s := range Sources() {
		names = append(names, s.Name)
	}
	return names
}

// Find returns the source of a name.
func Find(name string) (Source, bool) {
	for _, s := range Sources() {
		if s.Name == name {
			return s, true
		}
	}
	return Source{}, false
}
