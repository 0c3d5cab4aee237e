package report

// Policy is the report's part on one policy.
type Policy struct {
	ID       int64     `json:"id"` // 0 if the log has only its deletions
	Name     string    `json:"name"`
	Table    string    `json:"table"`    // the last version's in the period; "" if the log does not say
	State    string    `json:"state"`    // at the period's end; "" if the log does not say
	Version  int64     `json:"version"`  // the version in force at the end; 0 if the log does not say
	Evidence string    `json:"evidence"` // that version's evidence: due or claimed
	Action   string    `json:"action"`   // delete, soft or drop_partition
	Owner    string    `json:"owner"`
	Basis    string    `json:"basis"`
	Latitude string    `json:"latitude"`
	Verdict  Grade     `json:"verdict"`
	Findings []Finding `json:"findings"` // the worst first; none for a pass

	Zero        []ZeroLine            `json:"zero"` // the lines that must be zero, in the order of ZeroLines
	RollForward RollForward           `json:"roll_forward"`
	Deleted     Deleted               `json:"deleted"`
	Timeliness  Timeliness            `json:"timeliness"`
	Users       Users                 `json:"users"`
	Versions    List[Version]         `json:"versions"` // in force at the start, or made in the period
	States      List[StateChange]     `json:"states"`   // in the period
	Pauses      List[Pause]           `json:"pauses"`   // those that reach into the period
	Quarantine  Quarantine            `json:"quarantine"`
	Holds       []int64               `json:"holds"` // the numbers of the holds that touch its tables
	Snapshots   List[Snapshot]        `json:"snapshots"`
	Floors      List[RetainedAtLeast] `json:"floors"`
}

// ZeroLine is a number that must be zero, with the transactions that make it nonzero.
type ZeroLine struct {
	About        About             `json:"about"`
	Figure       Figure            `json:"figure"`
	Transactions List[Transaction] `json:"transactions"`
}

// Transaction is the place of a finding in the log.
type Transaction struct {
	Leaf   int64   `json:"leaf"` // the first record's leaf
	XID    uint32  `json:"xid"`
	Commit string  `json:"commit_lsn"`
	At     Instant `json:"at"`
	Table  string  `json:"table"` // "" if there are several, or none that is known
	Rows   int64   `json:"rows"`  // the rows that the line counts
}

// Deleted is the number of rows that a policy deleted.
type Deleted struct {
	Rows       int64                  `json:"rows"`     // rows of its table, by row and by drop
	ByRow      int64                  `json:"by_row"`   // deletions in the write-ahead log, one each
	ByDrop     int64                  `json:"by_drop"`  // rows of dropped partitions, as the dropping function counted them
	Soft       int64                  `json:"soft"`     // rows that stay, with a column set
	Cascaded   int64                  `json:"cascaded"` // rows of other tables, by foreign keys
	Batches    int64                  `json:"batches"`  // transactions
	Days       []Day                  `json:"days"`     // days in UTC with deletions
	Tables     List[TableDeleted]     `json:"tables"`   // by name
	Versions   []VersionDeleted       `json:"versions"` // ascending
	Partitions List[DroppedPartition] `json:"partitions"`
}

// Day is the number of rows deleted on one day.
type Day struct {
	Day      string `json:"day"` // 2026-10-31
	ByRow    int64  `json:"by_row"`
	ByDrop   int64  `json:"by_drop"`
	Soft     int64  `json:"soft"`
	Cascaded int64  `json:"cascaded"`
}

// TableDeleted is the number of rows that a policy deleted from one table or partition.
type TableDeleted struct {
	Table    string `json:"table"`
	Root     string `json:"root"` // the partition's root table; "" if it is not a partition
	ByRow    int64  `json:"by_row"`
	ByDrop   int64  `json:"by_drop"`
	Soft     int64  `json:"soft"`
	Cascaded int64  `json:"cascaded"`
}

// VersionDeleted is the number of rows that a policy deleted under one version.
type VersionDeleted struct {
	Version  int64 `json:"version"`
	ByRow    int64 `json:"by_row"`
	ByDrop   int64 `json:"by_drop"`
	Soft     int64 `json:"soft"`
	Cascaded int64 `json:"cascaded"`
}

// DroppedPartition is a partition that a policy dropped as a whole. Rows and instants are as the dropping function counted them, because the server
// publishes none of its rows.
type DroppedPartition struct {
	Table   string  `json:"table"`
	Rows    int64   `json:"rows"`
	Oldest  Instant `json:"oldest"`
	Newest  Instant `json:"newest"`
	Version int64   `json:"version"`
	XID     uint32  `json:"xid"`
	At      Instant `json:"at"`
	Leaf    int64   `json:"leaf"`
}

// RollForward is a balance of due rows between two counts. The executor made each count in one snapshot of the database. The transactions in
// the snapshots decide which deletions lie in between: those that the first count did not see and the second one did.
type RollForward struct {
	NotAssessed     Reason    `json:"not_assessed,omitempty"` // why there is no balance; the figures are then not assessed either
	Start           *Snapshot `json:"start"`
	End             *Snapshot `json:"end"`
	DueStart        Figure    `json:"due_at_start"`
	HeldStart       Figure    `json:"held_at_start"` // due, but kept by a hold
	QuarantineStart Figure    `json:"quarantined_at_start"`
	ByPolicy        Figure    `json:"deleted_by_policy"`
	ByUsers         Figure    `json:"deleted_by_users"` // due or not
	DueEnd          Figure    `json:"due_at_end"`
	HeldEnd         Figure    `json:"held_at_end"`
	QuarantineEnd   Figure    `json:"quarantined_at_end"`
	// FellDue is derived: due and held at the end, minus due and held at the start, plus deleted. It is the number of rows that fell due,
	// minus those whose due time was moved to a later one, plus those that users deleted before they were due.
	FellDue Figure `json:"fell_due_less_refreshed"`
}

// Snapshot is one count of due rows, as the executor states it: the write-ahead log does not show counts.
type Snapshot struct {
	ID          string  `json:"id"`
	Version     int64   `json:"version"`
	Begun       Instant `json:"begun"`
	Taken       Instant `json:"taken"` // "" if it was never taken
	Counted     Instant `json:"counted"`
	Leaf        int64   `json:"leaf"`   // the leaf of the record with the snapshot, or else of the first record
	Cutoff      Instant `json:"cutoff"` // the count is of rows due at this instant
	Seen        string  `json:"seen"`   // the snapshot as PostgreSQL writes it
	NotCounted  string  `json:"not_counted"`
	Due         int64   `json:"due"`     // due and not held
	Overdue     int64   `json:"overdue"` // due rows that are late by more than the latitude
	Held        int64   `json:"held"`
	Quarantined int64   `json:"quarantined"`
}

// Users counts what others than policies did to the policy's table. It is the same for two policies of one table.
type Users struct {
	Deleted    Figure `json:"deleted"` // rows, one each
	Truncates  Figure `json:"truncates"`
	Moves      Figure `json:"moves"`      // rows that moved to another partition, which are not deletions
	Unverified Figure `json:"unverified"` // rows deleted under a claim that does not verify
	// By the rule in force when they were deleted: that of a policy with evidence: due that deletes from the table.
	Due    Figure `json:"due"`
	NotDue Figure `json:"not_due"`
	Held   Figure `json:"held"`
}

// Version is a version of a policy.
type Version struct {
	Version    int64   `json:"version"`
	Made       Instant `json:"made"`
	By         string  `json:"by"`
	Reason     string  `json:"reason"`
	Table      string  `json:"table"`
	Terms      *Terms  `json:"terms"` // null if the log does not say
	Definition string  `json:"definition"`
	InForce    bool    `json:"in_force_at_start"`
	Leaf       int64   `json:"leaf"`
}

// Terms are a version's terms, without conditions, which may contain values of rows.
type Terms struct {
	Kind       string `json:"kind"` // "" for a column and an interval
	Column     string `json:"column"`
	Path       string `json:"path"`
	Unit       string `json:"unit"`
	Zone       string `json:"zone"`
	After      string `json:"after"`
	Span       string `json:"span"`
	TTLColumn  string `json:"ttl_column"`
	TTLDefault string `json:"ttl_default"`
	Sidecar    string `json:"sidecar"`
	Schedule   string `json:"schedule"` // every, daily or cron, with its value
	Window     string `json:"window"`
	Where      bool   `json:"where"`
	Action     string `json:"action"`
	Sets       string `json:"sets"`
	Evidence   string `json:"evidence"`
	Latitude   string `json:"latitude"`
	Owner      string `json:"owner"`
	Basis      string `json:"basis"`
}

// StateChange is a change of a policy's state or version in force.
type StateChange struct {
	At      Instant `json:"at"`
	State   string  `json:"state"`
	Version int64   `json:"version"`
	By      string  `json:"by"`
	Reason  string  `json:"reason"`
	ByHand  bool    `json:"by_hand"` // no command makes such a change
	Leaf    int64   `json:"leaf"`
}

// Pause is a time during which a policy was paused.
type Pause struct {
	From    Instant `json:"from"`    // "" if it began before the log
	To      Instant `json:"to"`      // "" if it continues at the period's end
	Seconds int64   `json:"seconds"` // within the period
	By      string  `json:"by"`
	Reason  string  `json:"reason"`
}

// Quarantine counts rows that could not be deleted. No log says which ones.
type Quarantine struct {
	AtStart Figure `json:"at_start"`
	Entered int64  `json:"entered"`
	Left    int64  `json:"left"` // deleted later, forgiven, or gone
	AtEnd   Figure `json:"at_end"`
}

// RetainedAtLeast is a floor in lapse.yaml as a version knew it: rows of a table must be kept at least that long.
type RetainedAtLeast struct {
	Version int64  `json:"version"`
	Table   string `json:"table"`
	Least   string `json:"least"`
	Below   Figure `json:"deleted_below"`
}
