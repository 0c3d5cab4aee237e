package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"filippo.io/torchwood"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/audit/export"
	"lapse/audit/rows"
	"lapse/audit/tree"
	"lapse/internal/config"
	"lapse/internal/durable"
	"lapse/schemas"
)

func (a *app) proveCommand() *cobra.Command {
	p := prover{app: a}
	var key string
	cmd := &cobra.Command{
		Use:   "prove --table TABLE --key KEY",
		Short: "Write a receipt for the deletion of one row",
		Long: `Finds the deletions of a row and writes a receipt, which shows them to anybody who knows the row's key and the log's public key: offline,
with lapse verify RECEIPT --key KEY --public-key NAME+HASH+KEY. The key is not in the receipt, nor anything of another row.

A receipt lets its holder test guesses: who has it can try keys until one fits. Treat it as personal data. It shows that the row was deleted from the
table, and by whom; not that it is gone from backups.

The row is looked for in the topics of events, or in an export (--dir). Where those no longer have it, each transaction of the log that deleted from the
table is tried, which needs the key as a JSON object with the names of its columns, and takes about a second for a million rows. The key
files named rows and, for the check of what is written, log must be at hand.`,
		Example: `  lapse prove --table public.sessions --key 42 -o receipt.json
  lapse prove --dir ./evidence --table public.sessions --key '{"id":"42"}' -o receipt.json`,
		Args: needsFlag("--table"),
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) (err error) {
		if p.table == "" || key == "" {
			return wrongUsage("--table and --key say which row: both are needed")
		}
		if p.key, err = readKey(key); err != nil {
			return err
		}
		return p.run(cmd.Context())
	})
	cmd.Flags().StringVar(&p.table, "table", "", "the row's `table`, a partition or its root, as schema.table")
	cmd.Flags().StringVar(&key, "key", "", "the row's `key`: one value, several as CSV in the order of the table's identity, or a JSON object")
	cmd.Flags().StringVarP(&p.out, "output", "o", "receipt.json", "the `file` that the receipt is written into")
	cmd.Flags().StringVar(&p.dir, "dir", "", "look in this `folder`, which lapse events --export has written, and not in the topics")
	a.jsonFlag(cmd)
	return cmd
}

// prover makes receipts.
type prover struct {
	*app
	table, out, dir string
	key             *keyFilter

	settings *config.Settings
	source   evidenceSource
	keys     schemas.EpochKeys
	log      *tree.Key // nil if it is not available
	signed   []byte    // the newest checkpoint
	newest   *tree.Checkpoint
	forgot   bool // a topic of events has lost its beginning
	tried    bool
}

// deletion is a deletion that was found.
type deletion struct {
	facts   rows.Facts
	columns []string
	leaf    int64  // the index of its transaction's record; -1 if there is none
	record  []byte // that record, after the second pass
	gone    string // why it did not happen; empty if it did
	chunks  rows.Chunks
	proof   tlog.RecordProof
	prover  *tree.Prover
}

func (p *prover) run(ctx context.Context) (err error) {
	if p.settings, err = p.app.settings(); err != nil {
		return err
	}
	if p.keys, err = p.settings.Keys.EpochKeys(); err != nil {
		return invalid(err)
	}
	p.hashKeys()
	closes, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer closes()
	found, err := p.find(ctx)
	if err != nil {
		return err
	}
	result := &proven{Searched: p.searched()}
	receipt, err := p.prove(ctx, found, result)
	if err != nil {
		return err
	}
	if len(receipt) > 0 {
		text, err := json.MarshalIndent(rows.NewReceipt(receipt), "", "  ")
		if err != nil {
			return err
		}
		if err := durable.Write(p.out, append(text, '\n')); err != nil {
			return fmt.Errorf("write the receipt: %w", err)
		}
		result.File = p.out
	}
	if p.asJSON {
		err = p.printJSON(result)
	} else {
		err = result.print(p.app)
	}
	if len(receipt) == 0 {
		err = errors.Join(err, errNeedsPerson)
	}
	return err
}

// hashKeys loads the keys that find rows with hidden keys.
func (p *prover) hashKeys() {
	if hash, err := p.settings.Keys.Load(config.HashKey); err == nil {
		p.key.hashes = append(p.key.hashes, hash)
	}
	if former, err := p.settings.Keys.Former(config.HashKey); err == nil {
		p.key.hashes = append(p.key.hashes, former...)
	}
}

// open opens the sources.
func (p *prover) open(ctx context.Context) (closes func(), err error) {
	if p.dir != "" {
		files, err := export.Open(ctx, p.dir)
		var fault *tree.Fault
		if errors.As(err, &fault) {
			return nil, invalid(err)
		}
		if err != nil {
			return nil, err
		}
		p.source = &folderSource{files}
		return files.Close, nil
	}
	if err := p.settings.RequireSink(); err != nil {
		return nil, err
	}
	c := &consumer{app: p.app, settings: p.settings}
	if c.client, err = p.newClient(p.settings); err != nil {
		return nil, err
	}
	p.source = topicSource{c}
	return c.client.Close, nil
}

// find searches the events for deletions of the row.
func (p *prover) find(ctx context.Context) (found []*deletion, err error) {
	topics := p.source.topicNames()
	for _, topic := range []string{topics.System, topics.User} {
		cut, err := p.source.cut(ctx, topic)
		if err != nil {
			return nil, err
		}
		p.forgot = p.forgot || cut
		err = p.source.each(ctx, topic, func(rec *schemas.Record) error {
			if d := p.deletionIn(rec); d != nil {
				found = append(found, d)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// deletionIn returns the deletion that an event reports; nil if it is of another row.
func (p *prover) deletionIn(rec *schemas.Record) *deletion {
	op := rec.Header(schemas.HeaderOp)
	if op != evidence.Delete.String() && op != evidence.SoftDelete.String() && op != evidence.Move.String() ||
		p.table != rec.Header(evidence.HeaderTable) && p.table != rec.Header(evidence.HeaderRoot) || !p.key.matches(rec.Key) {
		return nil
	}
	at, err := evidence.EventPosition(rec)
	columns, _, ok := readKeyObject(rec.Key)
	if err != nil || !ok {
		return nil
	}
	d := &deletion{columns: columns, leaf: -1, chunks: rows.Chunks{}}
	d.facts = rows.Facts{At: at, Table: rec.Header(evidence.HeaderTable), Op: op, Cause: rec.Header(evidence.HeaderCause)}
	if hidesKey(rec) {
		d.facts.Published = rec.Key
	}
	return d
}

// hidesKey reports whether an event has hashes in place of a key because its policy asks for that, not because the key is too long.
func hidesKey(rec *schemas.Record) bool {
	var body struct {
		Lapse struct {
			Hashed []string `json:"hashed"`
			Sizes  []int    `json:"sizes"`
		} `json:"lapse"`
		Data struct {
			Lapse struct {
				Hashed []string `json:"hashed"`
				Sizes  []int    `json:"sizes"`
			} `json:"lapse"`
		} `json:"data"`
	}
	if json.Unmarshal(rec.Value, &body) != nil {
		return false
	}
	return len(body.Lapse.Hashed)+len(body.Data.Lapse.Hashed) > 0 && len(body.Lapse.Sizes)+len(body.Data.Lapse.Sizes) == 0
}

// prove makes a receipt's deletions from those that were found.
func (p *prover) prove(ctx context.Context, found []*deletion, result *proven) (receipt []rows.Deletion, err error) {
	if err := p.findCheckpoint(ctx); err != nil {
		return nil, err
	}
	if found, err = p.readLog(ctx, found); err != nil {
		return nil, err
	}
	if err := p.readProofs(ctx, found); err != nil {
		return nil, err
	}
	if err := p.proveRecords(ctx, found); err != nil {
		return nil, err
	}
	for _, d := range found {
		deletion, shown, err := p.proveOne(d)
		if err != nil {
			result.Missing = append(result.Missing, fmt.Sprintf("%s of %s at %s: %v", d.facts.Op, d.facts.Table, d.facts.At.Commit, err))
			continue
		}
		receipt = append(receipt, *deletion)
		result.Deletions = append(result.Deletions, *shown)
	}
	return receipt, nil
}

// proveOne makes one deletion of a receipt, and checks it as the receipt's holder will.
func (p *prover) proveOne(d *deletion) (*rows.Deletion, *provenDeletion, error) {
	switch {
	case d.gone != "":
		return nil, nil, errors.New(d.gone)
	case d.leaf < 0:
		return nil, nil, errors.New("the log has no record of its transaction: another program has written the event, or the record is not there yet")
	case d.prover == nil:
		return nil, nil, errors.New("no checkpoint covers its record yet: the auditor signs the log within half a minute, or at the end of a run")
	}
	epoch, err := rows.EpochIn(d.record)
	if err != nil {
		return nil, nil, err
	}
	key, is := p.keys[epoch]
	switch {
	case is && key == nil:
		return nil, nil, fmt.Errorf("the key of %s was destroyed: no row of that month can be shown any more", epoch)
	case key == nil:
		return nil, nil, fmt.Errorf("the file of the key named rows has no key of %s", epoch)
	}
	out, err := rows.Prove(d.record, key, d.chunks, &d.facts)
	if err != nil {
		return nil, nil, err
	}
	out.Columns = d.columns
	out.Proof = string(torchwood.FormatProof(d.leaf, d.proof, p.signed))
	if p.log == nil {
		return out, &provenDeletion{
			Table: out.Table, Op: out.Op, Cause: out.Cause, LSN: d.facts.At.Commit.String(), Log: p.newest.Origin, Record: d.leaf, Records: p.newest.Size,
		}, nil
	}
	shown, err := out.Check(p.log.Verifier(), p.key.of)
	if err != nil {
		return nil, nil, fmt.Errorf("what was found does not verify: %w", err)
	}
	return out, provenOf(shown), nil
}
