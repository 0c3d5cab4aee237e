package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"lapse/audit/export"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/internal/config"
	"lapse/schemas"
)

func (a *app) verifyCommand() *cobra.Command {
	v := verifier{app: a, recent: recentBatches}
	cmd := &cobra.Command{
		Use:   "verify [--dir DIR | REPORT | RECEIPT --key KEY]",
		Short: "Check the log, an export of it, a report or a receipt, without trusting who made it",
		Long: `With a receipt, which lapse prove has written, it checks that the row with this key was deleted, and says by whom and when. It needs the file, the
key and --public-key, and nothing else. Another key does not fit: exit 3.

With a report, a page or its JSON, it makes the report again of the log (--dir, or the topics where they are configured), or checks with --public-key that the
log's key has signed it; with neither the report agrees with itself only: exit 2. In each case what the page shows is compared with its JSON.

With --dir it checks an export, and with none of these the log in its topic. Of an export it reads what lapse events --export has written, in bounded memory, and makes the log's Merkle tree again from the records alone:
signature, tree, entries, former checkpoints, and the files beside them. It asks no database and no broker. The folder of a sink ("sink: dir:" in
lapse.yaml), or a copy of one, is read in the same way, while its auditor runs or not.

The log's public key is what the proof rests on: name it with --public-key, as its owner has published it (the auditor logs it at each
start). Without the option it is made from the key named log, where that is at hand, or else taken from the export itself; then somebody who
wrote all of the folder wrote the key too, and the result says so.

An older copy of an export verifies as well. Only a checkpoint that you have seen before shows that something is missing after it, or that the key
has signed two logs: keep the file "checkpoint" of each export that you verify, and name it with --known the next time. Or
keep what --save FILE writes: with --known FILE the next verification reads only what a later export has more.

The events of an export are counted: each transaction has as many, of each table and cause, as its record says, in as many commitments as come to the root in
it. With --keys, which names the folder with the key named rows, each event is held against its commitment too.

Without --dir it reads the log's topic from its beginning: every record is a leaf of one tree, each checkpoint signs that tree as it was, and came in time; the
records follow one another, and what nobody has read is named as a gap. Then it reads the topics of events, counts them as those of an export are, and holds them against
the order that they promise; and compares the batches of the log with the ledger in the database, where that can be asked. With --save FILE the next time goes on from there: --known FILE.

A quorum of the witnesses that are named must have cosigned a checkpoint. With --ask each of them is asked how much it has seen: one that has
seen more shows that this is not the newest export, or that the log was cut. A log that grows is ahead of each export within half a minute.

What is found is named with its file and, where it is one record's, with that leaf's number: exit 3.`,
		Example: `  lapse verify --dir ./evidence --public-key app.example.com/lapse+1f2e3d4c+AWVhc3R...
  lapse verify report.html --dir ./evidence --public-key app.example.com/lapse+1f2e3d4c+AWVhc3R...
  lapse verify receipt.json --key 42 --public-key app.example.com/lapse+1f2e3d4c+AWVhc3R...
  lapse verify --dir ./evidence --known ./last-month/checkpoint
  lapse verify --known verified.json --save verified.json --ask`,
		Args: cobra.MaximumNArgs(1),
	}
	var rowKey string
	cmd.RunE = a.does(func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return v.file(cmd.Context(), args[0], rowKey)
		}
		if rowKey != "" {
			return wrongUsage("--key needs a receipt: name the file")
		}
		return v.run(cmd.Context())
	})
	cmd.Flags().StringVar(&v.dir, "dir", "", "the `folder` that lapse events --export has written, or that keeps the topics")
	cmd.Flags().StringVar(&v.public, "public-key", "", "the log's public `key`: name, hash and key with plus signs between them, or a file with it")
	cmd.Flags().StringArrayVar(&v.known, "known", nil, "a `file` with a checkpoint of this log that was seen before, or of an anchor; may be repeated")
	cmd.Flags().StringVar(&rowKey, "key", "", "with a receipt: the row's `key`, one value, several as CSV, or a JSON object")
	cmd.Flags().StringVar(&v.save, "save", "", "write into this `file` what was verified, for --known of the next time: it goes on from there")
	v.by.flags(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// verifier checks an export.
type verifier struct {
	*app
	dir, public string
	known       []string
	save        string
	by          byWitnesses
	recent      time.Duration // younger batches may not have reached the log yet
}

// verified is the result of `lapse verify`.
type verified struct {
	Verifies     bool        `json:"verifies"`
	Fault        *foundFault `json:"fault"` // the first fault; null if all verifies
	Log          string      `json:"log"`
	Records      int64       `json:"records"` // the number of log records that the checkpoint covers
	Root         string      `json:"root"`
	PublicKey    string      `json:"public_key"`
	Checkpoints  int         `json:"checkpoints"`  // those that fit the tree: the newest, the earlier ones, and those of --known
	Events       int         `json:"events"`       // the number of lines of the two topics of events, fences included
	Transactions int         `json:"transactions"` // those whose events, by table and cause, are as many as their records say
	Rooted       int         `json:"rooted"`       // those whose commitments produce the root of their record
	Opened       int         `json:"opened"`       // events that were held against their commitments
	Witnesses    []seenBy    `json:"witnesses"`
	Cosigned     int64       `json:"cosigned"` // the size of the newest checkpoint that the quorum cosigned; 0 without witnesses
	Misdated     *misdated   `json:"misdated"` // null if no transaction names a wrong time
	NotChecked   []string    `json:"not_checked"`

	// For a log in its topic, not an export.
	Coverage *logCoverage `json:"coverage"`
	Schedule *logSchedule `json:"schedule"`
	Foreign  int          `json:"foreign"` // the number of the topic's records that are not the log's
	Batches  int          `json:"batches"` // the number of batches in the database's ledger

	Deletions []provenDeletion `json:"deletions"` // the receipt's deletions
	Report    *verifiedReport  `json:"report"`    // null if something else was verified
}

// misdated counts transactions that name a time at which the server was not.
type misdated struct {
	Transactions int   `json:"transactions"` // a lower bound
	Leaf         int64 `json:"leaf"`         // the first one's leaf
}

func (r *verified) dated(c *verify.Clock) {
	if c.Misdated > 0 {
		r.Misdated = &misdated{c.Misdated, c.Leaf}
	}
}

// line describes the fault in one line.
func (m *misdated) line() string {
	return fmt.Sprintf("misdated    %s at least, the first at leaf %d: the time is not between those of the heartbeats around it; who replays transactions "+
		"of elsewhere (a replication origin) chooses their time, and not their place in the log", counted(uint64(m.Transactions), "transaction"), m.Leaf)
}

type foundFault struct {
	File string `json:"file"`
	Leaf *int64 `json:"leaf"` // null if it is not of a single record
	What string `json:"what"`
}

func faultOf(found *tree.Fault) *foundFault {
	f := &foundFault{File: found.File, What: found.What}
	if found.Leaf >= 0 {
		f.Leaf = &found.Leaf
	}
	return f
}

func (v *verifier) run(ctx context.Context) error {
	result := &verified{Witnesses: []seenBy{}, NotChecked: []string{
		shows,
	}}
	check := v.check
	if v.dir == "" {
		check = v.online
	}
	err := check(ctx, result)
	var found *tree.Fault
	switch {
	case errors.As(err, &found):
		result.Fault = faultOf(found)
		err = errNeedsPerson
	case err != nil:
		return err
	default:
		result.Verifies = true
	}
	if v.asJSON {
		return errors.Join(v.printJSON(result), err)
	}
	return errors.Join(v.print(result, found), err)
}

// check checks everything. After a fault it still fills in what it found before.
func (v *verifier) check(ctx context.Context, result *verified) error {
	files, err := export.Open(ctx, v.dir)
	if err != nil {
		return err
	}
	defer files.Close()
	key, err := v.key(files.Manifest.Tree, result)
	if err != nil {
		return err
	}
	far := v.progress("record")
	defer far.end()
	checked := &tree.Folder{Verifier: key, Progress: func(done, size int64) { far.at("verifying", int(done), int(size)) }}
	all, before, err := v.elsewhere(checked, files.KeepsTopics(), result)
	if err != nil {
		return err
	}
	from, err := files.Resume(before)
	if err != nil {
		return err
	}
	if from > 0 {
		result.NotChecked = append(result.NotChecked,
			fmt.Sprintf("the first %s, and their events: a former verification found nothing in them, as --known says", counted(uint64(from), "record")))
	}
	of, later, err := files.Tree(ctx, checked)
	if of != nil {
		result.Log, result.Records, result.Root, result.Checkpoints = of.Origin, of.Size, of.Root.String(), 1+of.Former+of.Known
		result.seen(of.Seen, of.Cosigned)
	}
	if err != nil {
		return err
	}
	files.Keep = v.save != ""
	if err := v.account(ctx, files, far, result); err != nil {
		return err
	}
	if later > 0 {
		result.NotChecked = append(result.NotChecked, fmt.Sprintf("%s of the log after the checkpoint: no one has signed them yet", counted(uint64(later), "record")))
	}
	if err := v.askWitnesses(ctx, tree.CheckpointFile, all, of.Signed, result); err != nil || v.save == "" {
		return err
	}
	return files.Save(v.save, of.Signed)
}

// account compares the export's events with the log.
func (v *verifier) account(ctx context.Context, files *export.Reader, far *progress, result *verified) error {
	keys, err := v.rowsKeys()
	if err != nil {
		return err
	}
	account, err := files.Account(ctx, keys, func(leaf int64) { far.at("counting events of", int(leaf)+1, int(result.Records)) })
	if err != nil {
		return err
	}
	result.Events = account.Events
	result.Transactions, result.Rooted, result.Opened = account.Transactions, account.Rooted, account.Opened
	result.NotChecked = append(result.NotChecked, notCounted(account.Account)...)
	result.dated(&account.Clock)
	return nil
}

// rowsKeys reads the months' keys, if the user named their folder.
func (v *verifier) rowsKeys() (schemas.EpochKeys, error) {
	if v.overrides.Keys == "" {
		return nil, nil
	}
	keys, err := config.KeySource{Dir: v.overrides.Keys}.EpochKeys()
	return keys, invalid(err)
}

// key is the log's public key; of is what the export says of its tree.
func (v *verifier) key(of *export.Tree, result *verified) (note.Verifier, error) {
	text := v.public
	if content, err := os.ReadFile(text); text != "" && err == nil {
		text = string(content)
	}
	if text == "" {
		if s, err := v.settings(); err == nil {
			keys, err := logKeysOf(s)
			if err != nil {
				return nil, err
			}
			if keys != nil {
				key, err := keys(of.Log)
				if err != nil {
					return nil, &tree.Fault{File: export.ManifestFile, Leaf: -1, What: err.Error()}
				}
				for _, one := range key.All() {
					if of.PublicKey != nil && one.Public() == *of.PublicKey {
						key = one // the log may still be under a former key
					}
				}
				result.PublicKey = key.Public()
				return key.Verifier(), nil
			}
		}
	}
	if text == "" {
		if of.PublicKey == nil {
			return nil, wrongUsage("the export names no key: give the log's with --public-key")
		}
		text = *of.PublicKey
		result.NotChecked = append(result.NotChecked, "whose key this is: it was taken from the export itself; compare it with what the log's owner has published")
	}
	result.PublicKey = strings.TrimSpace(text)
	key, err := note.NewVerifier(result.PublicKey)
	if err != nil {
		return nil, invalid(fmt.Errorf("the public key: %w: want NAME+HASH+KEY, as the auditor logs it at each start, or a file with it", err))
	}
	return key, nil
}

// print prints the result as text.
func (v *verifier) print(r *verified, found *tree.Fault) (err error) {
	if found != nil {
		_, err = fmt.Fprintf(v.out, "does not verify: %s\n", found.Error())
	} else {
		events := "as the manifest has them"
		if v.dir == "" {
			events = "in the order that the topics promise"
		}
		_, err = fmt.Fprintf(v.out, "verifies: %s of the log %s\nroot        %s\nkey         %s\ncheckpoints %d of one tree, which only grew from one to the next\nevents      "+
			"%d lines, %s\n", counted(uint64(r.Records), "record"), r.Log, r.Root, r.PublicKey, r.Checkpoints, r.Events, events)
		if err == nil && r.Transactions > 0 {
			_, err = fmt.Fprintf(v.out, "counted     %s, each with the events that its record says; %d with the commitments of its root, and %s with their own\n",
				counted(r.Transactions, "transaction"), r.Rooted, counted(r.Opened, "event"))
		}
	}
	lines := append(r.onlineLines(), r.witnessLines()...)
	if r.Misdated != nil {
		lines = append(lines, r.Misdated.line())
	}
	for _, line := range lines {
		if err == nil {
			_, err = fmt.Fprintln(v.out, line)
		}
	}
	for _, what := range r.NotChecked {
		if err == nil {
			_, err = fmt.Fprintf(v.out, "not checked: %s\n", what)
		}
	}
	return err
}
