package main

import (
	"context"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/audit/rows"
	"lapse/replication"
	"lapse/schemas"
)

// guesser tries a row's key against the commitments of transactions whose events no longer exist.
type guesser struct {
	*prover
	identity  []byte
	published [][]byte // what an event may have in place of the key; nil for nothing
	open      map[replication.Position]*guessed
	found     []*deletion
}

// guessed is a transaction that deleted rows of the table.
type guessed struct {
	leaf  int64
	kinds []evidence.Tally
	facts rows.Facts // the facts that its rows share
	key   schemas.Key
}

func newGuesser(p *prover) *guesser {
	g := &guesser{prover: p, open: map[replication.Position]*guessed{}, published: [][]byte{nil}}
	var keys []evidence.Key
	for _, name := range p.key.names {
		value := p.key.named[name]
		keys = append(keys, evidence.Key{Name: name, Value: []byte(value), Null: value == null})
	}
	g.identity = evidence.AppendIdentity(nil, keys, evidence.UTF8Text)
	for _, hash := range p.key.hashes {
		hidden := slices.Clone(keys)
		for i := range hidden {
			if !hidden[i].Null {
				hidden[i].Value = []byte(evidence.HashOf(hash, string(hidden[i].Value)))
			}
		}
		g.published = append(g.published, evidence.AppendIdentity(nil, hidden, evidence.UTF8Text))
	}
	return g
}

// transaction takes a transaction's record. It tries a transaction of a single row at once, because the root is its commitment.
func (g *guesser) transaction(leaf int64, record *evidence.LogRecord, c *evidence.TransactionContent) {
	if c.Rows == nil || len(c.Rows.Root) != tlog.HashSize || g.keys[c.Rows.Epoch] == nil {
		return
	}
	one := &guessed{leaf: leaf, key: g.keys[c.Rows.Epoch]}
	for _, t := range c.Observed {
		if t.Table == g.table && (t.Op == evidence.Delete || t.Op == evidence.SoftDelete || t.Op == evidence.Move) {
			one.kinds = append(one.kinds, t)
		}
	}
	if len(one.kinds) == 0 {
		return
	}
	at := replication.Position{History: record.History, Timeline: record.Timeline, Commit: c.CommitLSN}
	one.facts = rows.Facts{SystemIdentifier: record.SystemIdentifier, DatabaseOID: record.DatabaseOID, At: at, Table: g.table, Identity: g.identity}
	if c.Rows.Count == 1 {
		g.try(one, []rows.Commitment{{Ordinal: c.Rows.First, Hash: tlog.Hash(c.Rows.Root)}})
		return
	}
	g.open[at] = one
}

// find reads the other transactions' commitments and tries them.
func (g *guesser) find(ctx context.Context) ([]*deletion, error) {
	err := g.source.each(ctx, g.source.topicNames().Proofs, func(rec *schemas.Record) error {
		from, all, ok := rows.ChunkOf(rec)
		from.Ordinal = 0
		if one := g.open[from]; ok && one != nil {
			g.try(one, all)
		}
		return nil
	})
	return g.found, err
}

func (g *guesser) try(one *guessed, all []rows.Commitment) {
	salts := rows.Salts(one.key, one.facts.SystemIdentifier, one.facts.DatabaseOID, one.facts.At)
	for i := range all {
		salt := salts(all[i].Ordinal)
		for k := range one.kinds {
			facts := one.facts
			facts.At.Ordinal, facts.Op, facts.Cause = all[i].Ordinal, one.kinds[k].Op.String(), one.kinds[k].Cause.String()
			for _, facts.Published = range g.published {
				if facts.Commitment(salt) == all[i].Hash && !g.has(facts.At) {
					g.found = append(g.found, &deletion{facts: facts, columns: g.prover.key.names, leaf: one.leaf, chunks: rows.Chunks{}})
				}
			}
		}
	}
}

// has reports whether a deletion was found before: the store may have a chunk twice.
func (g *guesser) has(at replication.Position) bool {
	return slices.ContainsFunc(g.found, func(d *deletion) bool { return d.facts.At == at })
}
