//! A small task that the embeddings do not solve as they are: whether a remark praises or complains, whatever it is about.

/// What remarks are about. The last eight are kept for the test.
const THINGS: [&str; 24] = [
    "the hotel",
    "the soup",
    "this camera",
    "the train ride",
    "her lecture",
    "the new update",
    "the garden tour",
    "my bicycle",
    "the dentist",
    "that museum",
    "the board game",
    "the repair",
    "our guide",
    "the coffee",
    "this backpack",
    "the concert",
    "the bakery",
    "that film",
    "the ferry",
    "this novel",
    "the software",
    "the tailor",
    "my headphones",
    "the ski course",
];

/// What is said: templates for praise and for complaint. The last three of each are kept for the test.
const PRAISE: [&str; 12] = [
    "I would choose {} again without thinking twice.",
    "{} was better than anything I had hoped for.",
    "Everybody in our group was delighted with {}.",
    "{} turned out to be a pleasure from start to finish.",
    "There is nothing about {} that I would change.",
    "We still smile when we talk about {}.",
    "{} is worth every penny.",
    "You will not regret {}.",
    "I have told all my friends to try {}.",
    "{} made our week.",
    "I could not be happier with {}.",
    "Without a doubt {} deserves five stars.",
];

const COMPLAINT: [&str; 12] = [
    "I would never choose {} again.",
    "{} was worse than anything I had feared.",
    "Everybody in our group was annoyed by {}.",
    "{} turned out to be a nuisance from start to finish.",
    "There is nothing about {} that I would keep.",
    "We still groan when we talk about {}.",
    "{} is not worth a penny.",
    "You will regret {}.",
    "I have warned all my friends about {}.",
    "{} ruined our week.",
    "I could not be more disappointed with {}.",
    "Without a doubt {} deserves no star at all.",
];

/// Things and templates kept for the test.
const KEPT_THINGS: usize = 8;
const KEPT_TEMPLATES: usize = 3;

/// Remarks with 1 for praise and 0 for complaint.
pub type Remarks = Vec<(String, u32)>;

/// Remarks to learn from, and remarks about other things in other words.
pub fn remarks() -> (Remarks, Remarks) {
    let (things, kept_things) = THINGS.split_at(THINGS.len() - KEPT_THINGS);
    let (mut training, mut test) = (Vec::new(), Vec::new());
    for (label, templates) in [(1, PRAISE), (0, COMPLAINT)] {
        let (templates, kept) = templates.split_at(templates.len() - KEPT_TEMPLATES);
        training.extend(combine(things, templates, label));
        test.extend(combine(kept_things, kept, label));
    }
    (training, test)
}

fn combine(things: &[&str], templates: &[&str], label: u32) -> Remarks {
    let remark = |thing: &str, template: &str| {
        let text = template.replace("{}", thing);
        // A sentence begins with a capital letter.
        let mut letters = text.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        (first + letters.as_str(), label)
    };
    things.iter().flat_map(|thing| templates.iter().map(|template| remark(thing, template))).collect()
}
