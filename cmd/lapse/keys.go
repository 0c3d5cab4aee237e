package main

import (
	"context"
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

// keyList is what `lapse keys list` prints.
type keyList struct {
	Keys      []listedKey   `json:"keys"`
	PublicKey *string       `json:"public_key"` // of the log; null where its name is not known
	Unknown   string        `json:"unknown"`    // why it is not
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

// keyUses says what each key is for.
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
		Args: cobra.NoArgs,
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

// publicKey is what the log's checkpoints verify with.
func (a *app) publicKey(ctx context.Context, s *config.Settings) (string, error) {
	name := s.LogName
	if name == "" {
		conn, err := a.open(ctx, s, session{command: "lapse keys list", to: s.Database.Owner, superuser: true})
		if err != nil {
			return "", fmt.Errorf("the log's name is made from the database, since log_name is not set: %w", err)
		}
		defer database.Close(conn)
		var system int64
		var oid uint32
		if err := conn.QueryRow(ctx, `select system_identifier, (select oid from pg_database where datname = current_database()) from pg_control_system()`).
			Scan(&system, &oid); err != nil {
			return "", err
		}
		name = audit.DefaultLogName(uint64(system), oid, s.Topics.Log)
	}
	secret, err := s.Keys.Load(config.LogKey)
	if err != nil {
		return "", err
	}
	key, err := tree.NewKey(secret, name)
	if err != nil {
		return "", err
	}
	return key.Public(), nil
}

// print is what a person reads.
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

// rotatedKeys is what `lapse keys rotate` prints.
type rotatedKeys struct {
	Added []schemas.Epoch `json:"added"`
	Until schemas.Epoch   `json:"until"` // the last month with a key
}

func (a *app) keysRotateCommand() *cobra.Command {
	var others []string
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make the keys of the next twelve months",
		Long: `Adds to the file of the key named rows a random key for each month that it lacks, up to a year from now. Run it once a year; lapse doctor
says when. A key that is there never changes, and a destroyed one stays destroyed. Then give the file to every machine that audits, and start
the auditors again: each month has one key, and an auditor with another one is refused.

The keys named tag and log stay as long as the database and the log do. For hash see "Another route" in docs/configuration.md.`,
		Example: `  lapse keys rotate
  lapse keys rotate --epoch 2031-02`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.does(func(*cobra.Command, []string) error {
		var epochs []schemas.Epoch
		for _, text := range others {
			epoch, err := schemas.ParseEpoch(text)
			if err != nil {
				return wrongUsage("--epoch: %v", err)
			}
			epochs = append(epochs, epoch)
		}
		s, err := a.settings()
		if err != nil {
			return err
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
		result := rotatedKeys{added, all[len(all)-1]}
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
	a.jsonFlag(cmd)
	return cmd
}
