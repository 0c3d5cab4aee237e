package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lapse/audit"
	"lapse/audit/tree"
	"lapse/internal/config"
	"lapse/planner/database"
	"lapse/schemas"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Show the keys, make those of the next months, and destroy those of past ones",
		Long: `Lapse has four keys, each a file in the folder of keys: tag, with which executors sign what they claim; log, which signs the log; hash, for
hidden values of keys; and rows, which has a key for each month. With a month's key each deleted row is committed to in the log, so that a
receipt shows one row and says nothing of any other.`,
		Example: `  lapse keys list
  lapse keys rotate`,
		Args: cobra.ArbitraryArgs,
		RunE: noCommand,
	}
	cmd.AddCommand(a.keysListCommand(), a.keysRotateCommand(), a.keysDestroyCommand())
	return cmd
}

// keyList is the result of `lapse keys list`.
type keyList struct {
	Keys      []listedKey   `json:"keys"`
	PublicKey *string       `json:"public_key"` // the log's; null if the log's name is unknown
	Unknown   string        `json:"unknown"`    // why it is unknown
	Epochs    []listedEpoch `json:"epochs"`
}

type listedKey struct {
	Name        string `json:"name"`
	Use         string `json:"use"`
	Place       string `json:"place"` // the file, or the variable
	Fingerprint string `json:"fingerprint"`
}

type listedEpoch struct {
	Epoch       schemas.Epoch `json:"epoch"`
	State       string        `json:"state"` // past, present, ahead or destroyed
	Fingerprint string        `json:"fingerprint"`
}

// keyUses describes the use of each key.
var keyUses = map[config.KeyName]string{
	config.TagKey: "signs what executors claim", config.LogKey: "signs the log", config.RowsKey: "commits to rows, a key for each month",
	config.HashKey: "hides values of keys",
}

func (a *app) keysListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the fingerprints of the keys, and the log's public key",
		Long: `Shows what each key is for, where it is and its fingerprint, the months that the key named rows has, and the log's public key as
lapse verify --public-key wants it: publish that one where the readers of your evidence find it. No key is shown.

Without log_name in lapse.yaml the log's name is made from the database's identity, which is asked for.`,
		Example: `  lapse keys list
  lapse keys list --json`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		s, err := a.settings()
		if err != nil {
			return err
		}
		list, err := a.listKeys(cmd.Context(), s)
		if err != nil {
			return invalid(err)
		}
		if a.asJSON {
			return a.printJSON(list)
		}
		return list.print(a)
	})
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) listKeys(ctx context.Context, s *config.Settings) (*keyList, error) {
	list := &keyList{}
	for _, name := range config.KeyNames() {
		key, err := s.Keys.Load(name)
		if err != nil {
			return nil, err
		}
		list.Keys = append(list.Keys, listedKey{string(name), keyUses[name], s.Keys.Place(name), key.Fingerprint()})
	}
	epochs, err := s.Keys.EpochKeys()
	if err != nil {
		return nil, err
	}
	present := schemas.EpochOf(time.Now())
	for _, epoch := range epochs.Epochs() {
		listed := listedEpoch{Epoch: epoch, State: "destroyed"}
		if key := epochs[epoch]; key != nil {
			listed.Fingerprint = key.Fingerprint()
			switch {
			case epoch < present:
				listed.State = "past"
			case epoch == present:
				listed.State = "present"
			default:
				listed.State = "ahead"
			}
		}
		list.Epochs = append(list.Epochs, listed)
	}
	public, err := a.publicKey(ctx, s)
	if err != nil {
		list.Unknown = err.Error()
		return list, nil
	}
	list.PublicKey = &public
	return list, nil
}

// publicKey returns the public key of the log's checkpoints.
func (a *app) publicKey(ctx context.Context, s *config.Settings) (string, error) {
	name := s.LogName
	if name == "" {
		conn, err := a.open(ctx, s, session{command: "lapse keys list", to: s.Database.Owner, superuser: true})
		if err != nil {
			return "", fmt.Errorf("the log's name is made from the database, since log_name is not set: %w", err)
		}
		defer database.Close(conn)
		id, err := identityOf(ctx, conn)
		if err != nil {
			return "", err
		}
		name = audit.DefaultLogName(id.system, id.oid, s.Topics.Log)
	}
	keys, err := logKeysOf(s)
	if err == nil && keys == nil {
		_, err = s.Keys.Load(config.LogKey)
	}
	if err != nil {
		return "", err
	}
	key, err := keys(name)
	if err != nil {
		return "", err
	}
	return key.Public(), nil
}

// logKeysOf derives the key of a log by name, with its former keys, from the key named log; nil if that is not available.
func logKeysOf(s *config.Settings) (of func(name string) (*tree.Key, error), err error) {
	secret, err := s.Keys.Load(config.LogKey)
	if errors.Is(err, config.ErrNoKey) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	former, err := s.Keys.Former(config.LogKey)
	if err != nil {
		return nil, err
	}
	return func(name string) (*tree.Key, error) { return tree.NewKey(secret, name, former...) }, nil
}

// print prints the list as text.
func (l *keyList) print(a *app) (err error) {
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(a.out, format, args...)
		}
	}
	for _, k := range l.Keys {
		line("%-5s %s  %s (%s)\n", k.Name, k.Fingerprint, k.Use, k.Place)
	}
	if l.PublicKey != nil {
		line("the log's public key: %s\n", *l.PublicKey)
	} else {
		line("the log's public key is not known: %s\n", l.Unknown)
	}
	for _, e := range l.Epochs {
		line("%s\n", strings.TrimRight(fmt.Sprintf("rows of %s  %-9s  %s", e.Epoch, e.State, e.Fingerprint), " "))
	}
	if len(l.Epochs) == 0 {
		line("the key named rows has no months: run lapse keys rotate\n")
	}
	return err
}

// rotatedKeys is the result of `lapse keys rotate`.
type rotatedKeys struct {
	Added []schemas.Epoch `json:"added"`
	Until schemas.Epoch   `json:"until"` // the last month with a key
	Log   *rotatedLog     `json:"log"`   // null unless --log is given
}

// rotatedLog describes the rotation of the key named log.
type rotatedLog struct {
	Fingerprint string `json:"fingerprint"` // the new key's
	Former      string `json:"former"`      // the file with the former key
}

func (a *app) keysRotateCommand() *cobra.Command {
	var others []string
	var log bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make the keys of the next twelve months, or another key for the log",
		Long: `Adds to the file of the key named rows a random key for each month that it lacks, up to a year from now. Run it once a year; lapse doctor
says when. A key that is there never changes, and a destroyed one stays destroyed. Then give the file to every machine that audits, and start
the auditors again: each month has one key, and an auditor with another one is refused.

With --log it makes another key named log, and keeps the former one beside it. The next start of the auditor writes a record that both keys have signed:
up to it the log is under the former key, and from then on under the next. Without the former key that start is refused. The log's name stays. Before it, give
each witness the next public key, which lapse keys list shows; publish it beside the former one. Nothing else has to be done: either
public key verifies the log.

The key named tag stays as long as the database does. For hash see "Another route" in docs/configuration.md.`,
		Example: `  lapse keys rotate
  lapse keys rotate --log
  lapse keys rotate --epoch 2031-02`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(*cobra.Command, []string) error {
		epochs, err := parseEpochs(others)
		if err != nil {
			return err
		}
		s, err := a.settings()
		if err != nil {
			return err
		}
		if log {
			return a.rotateLog(s)
		}
		added, err := s.Keys.AddMonths(time.Now(), epochs...)
		if err != nil {
			return invalid(err)
		}
		keys, err := s.Keys.EpochKeys()
		if err != nil {
			return err
		}
		all := keys.Epochs()
		result := rotatedKeys{Added: added, Until: all[len(all)-1]}
		if a.asJSON {
			return a.printJSON(result)
		}
		if len(added) == 0 {
			_, err = fmt.Fprintf(a.out, "nothing to do: there are keys up to %s\n", result.Until)
		} else {
			_, err = fmt.Fprintf(a.out, "%s made, up to %s, in %s: give this file to every machine that audits, and start the auditors again\n",
				counted(uint64(len(added)), "key"), result.Until, s.Keys.Place(config.RowsKey))
		}
		return err
	})
	cmd.Flags().StringArrayVar(&others, "epoch", nil, "also the key of this `month`, such as 2031-02; may be repeated")
	cmd.Flags().BoolVar(&log, "log", false, "make another key for the log instead")
	cmd.MarkFlagsMutuallyExclusive("epoch", "log")
	a.jsonFlag(cmd)
	return cmd
}

func parseEpochs(texts []string) (epochs []schemas.Epoch, err error) {
	for _, text := range texts {
		epoch, err := schemas.ParseEpoch(text)
		if err != nil {
			return nil, wrongUsage("--epoch: %v", err)
		}
		epochs = append(epochs, epoch)
	}
	return epochs, nil
}

// rotateLog makes a new key for the log.
func (a *app) rotateLog(s *config.Settings) error {
	key, former, err := s.Keys.RotateLog()
	if err != nil {
		return invalid(err)
	}
	result := rotatedKeys{Added: []schemas.Epoch{}, Log: &rotatedLog{key.Fingerprint(), former}}
	if a.asJSON {
		return a.printJSON(result)
	}
	_, err = fmt.Fprintf(a.out, "%s has another key, %s; the former one is in %s: give both files to every machine that audits, and the public key of lapse keys list to\n"+
		"witnesses and readers. The auditor's next start writes the change into the log, signed by both\n", s.Keys.Place(config.LogKey), key.Fingerprint(), former)
	return err
}
