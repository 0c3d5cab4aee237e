package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/doctor"
	"lapse/planner/database"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Report what is wrong with server, installation, roles and tables, and how to fix it",
		Long: `Checks every precondition that the database can tell, one line each: ok, warn or fail. The fix follows, as
SQL that a superuser can run as printed, in this database; text that is not SQL follows two dashes.

It changes nothing and reads the system catalog alone. It takes any login, before "lapse init" too; what the login may not read
is a warning. The exit code is 3 when a check fails, and 0 with warnings only.`,
		Example: `  lapse doctor
  lapse doctor --json`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		s, err := a.settings()
		if err != nil {
			return err
		}
		found, err := a.examine(cmd.Context(), s)
		if err != nil {
			return err
		}
		if a.asJSON {
			err = a.printJSON(findings{found, doctor.Failed(found)})
		} else {
			a.printFindings(found)
		}
		if err == nil && doctor.Failed(found) {
			err = errNeedsPerson
		}
		return err
	})
	a.jsonFlag(cmd)
	return cmd
}

// findings are what `lapse doctor` prints.
type findings struct {
	Findings []doctor.Finding `json:"findings"`
	Failed   bool             `json:"failed"`
}

func (a *app) examine(ctx context.Context, s *config.Settings) ([]doctor.Finding, error) {
	logins, err := a.others(s)
	if err != nil {
		return nil, err
	}
	conn, err := a.open(ctx, s, session{command: "lapse doctor", to: s.Database.Owner, superuser: true})
	if err != nil {
		return nil, err
	}
	defer database.Close(conn)
	required := s.Audit == config.AuditRequired
	found, err := doctor.Doctor{Conn: conn, Roles: s.Roles, Slot: s.Slot, Logins: logins, Now: time.Now}.Examine(ctx)
	if err != nil || !required {
		return found, err
	}
	found = append(found, examineKeys(s.Keys, time.Now())...)
	found = append(found, a.examineWitnesses(ctx, s)...)
	if s.Folder != "" {
		id, err := identityOf(ctx, conn)
		if err != nil {
			return nil, err
		}
		return append(found, examineFolder(ctx, s, id)...), nil
	}
	return append(found, a.examineKafka(ctx, s)...), nil
}

// kafkaPatience is how long the doctor waits for a broker.
const kafkaPatience = 5 * time.Second

// examineKafka checks whether a broker answers, and how long it keeps events. Without Kafka Lapse deletes nothing and loses nothing.
func (a *app) examineKafka(ctx context.Context, s *config.Settings) []doctor.Finding {
	f := doctor.Finding{Check: "kafka", Grade: doctor.Warn}
	cfg, err := a.kafkaConfig(s)
	if err != nil {
		f.Text = err.Error()
		return []doctor.Finding{f}
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaPatience)
	defer cancel()
	transport := &kafkago.Transport{TLS: cfg.TLS, SASL: cfg.SASL}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(cfg.Brokers...), Timeout: kafkaPatience, Transport: transport}
	answer, err := client.Metadata(ctx, &kafkago.MetadataRequest{})
	if err != nil || len(answer.Brokers) == 0 {
		f.Text = "no broker of " + strings.Join(cfg.Brokers, ", ") + " answers: nothing is published, and so nothing is deleted"
		f.Advice = "see kafka: in lapse.yaml, and whether the brokers run"
		return []doctor.Finding{f}
	}
	f.Grade, f.Text = doctor.OK, fmt.Sprintf("%d brokers answer", len(answer.Brokers))
	found := []doctor.Finding{f}
	for _, topic := range []string{s.Topics.System, s.Topics.User} {
		if kept := keptFor(settingsOf(ctx, client, topic)["retention.ms"]); kept != "" {
			found = append(found, doctor.Finding{Check: "events", Grade: doctor.OK, Text: fmt.Sprintf("%s keeps events %s; the log stays", topic, kept)})
		}
	}
	return append(found, losesRecords(ctx, client, s)...)
}

// losesRecords checks for topics that lose what the audit must keep. The auditor refuses them too, but checks only once an hour.
func losesRecords(ctx context.Context, client *kafkago.Client, s *config.Settings) (found []doctor.Finding) {
	for _, topic := range []string{s.Topics.System, s.Topics.User, s.Topics.Log} {
		settings := settingsOf(ctx, client, topic)
		for _, name := range []string{"cleanup.policy", "retention.ms", "retention.bytes"} {
			value, known := settings[name]
			if wrong := value != "-1" && topic == s.Topics.Log; !known || name == "cleanup.policy" && !strings.Contains(value, "compact") ||
				name != "cleanup.policy" && !wrong {
				continue
			}
			found = append(found, doctor.Finding{
				Check: "topics", Grade: doctor.Fail, Text: fmt.Sprintf("%s loses records: %s=%s", topic, name, value),
				Advice: "set cleanup.policy=delete, and for the log retention.ms=-1 and retention.bytes=-1 (kafka-configs.sh)",
			})
		}
	}
	return found
}

// settingsOf returns a topic's settings, or none if the topic does not exist or the login may not read them.
func settingsOf(ctx context.Context, client *kafkago.Client, topic string) map[string]string {
	settings := map[string]string{}
	resp, err := client.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{{
		ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"cleanup.policy", "retention.ms", "retention.bytes"},
	}}})
	if err != nil {
		return settings
	}
	for _, r := range resp.Resources {
		for _, entry := range r.ConfigEntries {
			settings[entry.ConfigName] = entry.ConfigValue
		}
	}
	return settings
}

// keptFor says how long a topic keeps events by its retention.ms; empty if unknown.
func keptFor(retention string) string {
	switch ms, err := strconv.ParseInt(retention, 10, 64); {
	case err != nil:
		return ""
	case ms < 0:
		return "forever"
	default:
		return fmt.Sprintf("for %d hours (retention.ms=%d)", ms/time.Hour.Milliseconds(), ms)
	}
}

// printFindings prints a line for each finding and, below it, how to fix it.
func (a *app) printFindings(found []doctor.Finding) {
	counts := map[doctor.Grade]int{}
	for _, f := range found {
		counts[f.Grade]++
		fmt.Fprintf(a.out, "%-4s  %-24s  %s\n", f.Grade, onOneLine(f.Check), onOneLine(f.Text))
		for _, statement := range f.Fix {
			fmt.Fprintf(a.out, "        %s;\n", statement)
		}
		if f.Advice != "" {
			fmt.Fprintf(a.out, "        -- %s\n", onOneLine(f.Advice))
		}
	}
	fmt.Fprintf(a.out, "%d ok, %d warnings, %d failed\n", counts[doctor.OK], counts[doctor.Warn], counts[doctor.Fail])
}
